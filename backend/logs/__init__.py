"""Logs of other people's agents: read in any format, and X-rayed for what reuse would save. Free of torch.

Others use, by module:

    calls: Call, Message, Tool, Usage
    reader: LogReader
"""
