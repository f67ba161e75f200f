"""What agents read, write and do: templates, pipelines, presets, tools, generated tasks. Free of torch."""
