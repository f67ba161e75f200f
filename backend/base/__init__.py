"""What every room uses: errors, text checks, statistics, files of rows. Free of torch.

All other rooms import this one, so it knows no prompt, no record and no model. Users read its error messages
as they are, so each says what to do.

Others use, by module:

    cancel: stop_if
    clock: Clock
    errors: BudgetError, LabError, MemoryFullError, ModelError, NotRelocatableError, OptionError,
        PromptError, RateError, RecordError, RunCancelled
    machine: processor, versions
    ranges: check_ranges, check_whole
    redaction: redact
    row_file: RowFile
    serialization: Saved, decode, encode, pack, unpack
    statistics: Share, bootstrap, bootstrap_interval, mean_and_half, mean_interval, share, share_of, wilson
    text: check_label, check_text, show
"""
