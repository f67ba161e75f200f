"""What everybody uses: errors, redaction, the machine. Free of torch and of the lab's own ideas."""
