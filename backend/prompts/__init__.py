"""What agents read, write and do: templates, pipelines, presets, tools, generated tasks. Free of torch.

A pipeline is agents whose templates have holes for the request and for one another's texts. Presets are
pipelines that ship with the lab, tools are what an agent may call, and tasks draw requests whose answers
are known.

Others use, by module:

    agent: Agent
    notices: notices
    pipeline: Pipeline
    presets: Example, Preset, load_preset, preset_requests
    scoring: Scoring, extract_answer, right
    template: Placeholder, PromptTemplate, agent_label
    tools.registry: get_tool, tool_names
"""
