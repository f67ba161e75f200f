"""What leaves a visit and comes back: links, bundles, stored runs, citations. Free of torch."""
