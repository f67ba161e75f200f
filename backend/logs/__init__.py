"""Logs of other people's agents: read in any format, and X-rayed for what reuse would save. Free of torch.

::

    reader      a file, call by call     calls     the typed call and its checks
    plain, openai_chat, anthropic_messages, otlp, inspect_eval         a format each
    pieces      cut, tokenised once      gather    a log in numbers
    prefixes    what prefix caches hit   anywhere  what any cache could reuse
    edits       two versions of a text   causes    why a prefix was missed
    layouts     other orders             advice    templates and layouts
    xray        all of it

Others use, by module:

    calls: Call, Message, Tool, Usage
    reader: LogReader
    timeline: OpenLog, Pair, Row, Run
    xray: CallXRay, XRay, xray
"""
