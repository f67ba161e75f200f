"""The framework's own widgets in the lab's colours and type; no font is fetched from anywhere."""

import inspect

import gradio as gr

from viz.base.theme import FONT, MONO

VARIABLES = {
    "body_background_fill": "var(--kv-page)",
    "body_text_color": "var(--kv-ink)",
    "body_text_color_subdued": "var(--kv-muted)",
    "background_fill_primary": "var(--kv-surface)",
    "background_fill_secondary": "var(--kv-soft)",
    "block_background_fill": "transparent",
    "block_border_color": "var(--kv-line)",
    "block_label_text_color": "var(--kv-muted)",
    "block_title_text_color": "var(--kv-ink-2)",
    "block_info_text_color": "var(--kv-muted)",
    "border_color_primary": "var(--kv-line)",
    "border_color_accent": "var(--kv-accent)",
    "color_accent_soft": "var(--kv-soft)",
    "input_background_fill": "var(--kv-surface)",
    "input_border_color": "var(--kv-line-strong)",
    "input_border_color_focus": "var(--kv-accent)",
    "input_placeholder_color": "var(--kv-muted)",
    "checkbox_background_color": "var(--kv-surface)",
    "checkbox_background_color_selected": "var(--kv-accent)",
    "checkbox_border_color": "var(--kv-line-strong)",
    "checkbox_border_color_selected": "var(--kv-accent)",
    "checkbox_label_background_fill": "var(--kv-surface)",
    "checkbox_label_background_fill_hover": "var(--kv-soft)",
    "checkbox_label_background_fill_selected": "var(--kv-surface)",
    "checkbox_label_border_color": "var(--kv-line)",
    "checkbox_label_text_color": "var(--kv-ink)",
    "button_primary_background_fill": "var(--kv-accent)",
    "button_primary_background_fill_hover": "color-mix(in srgb, var(--kv-accent) 86%, var(--kv-ink))",
    "button_primary_text_color": "var(--kv-surface)",
    "button_secondary_background_fill": "var(--kv-surface)",
    "button_secondary_background_fill_hover": "var(--kv-soft)",
    "button_secondary_border_color": "var(--kv-line-strong)",
    "button_secondary_text_color": "var(--kv-ink)",
    "button_cancel_background_fill": "var(--kv-surface)",
    "button_cancel_background_fill_hover": "var(--kv-bad-soft)",
    "button_cancel_border_color": "var(--kv-bad)",
    "button_cancel_text_color": "var(--kv-bad)",
    "link_text_color": "var(--kv-accent)",
    "panel_background_fill": "transparent",
    "shadow_drop": "none",
    "shadow_drop_lg": "0 6px 22px rgb(0 0 0 / .16)",
    "loader_color": "var(--kv-accent)",
}
PLAIN = {
    "block_border_width": "0px",
    "block_padding": "0px",
    "block_shadow": "none",
    "input_border_width": "1px",
    "layout_gap": "0px",
}


def theme() -> gr.themes.Base:
    """Every colour comes from the page's variables, which change with the theme."""
    base = gr.themes.Base(
        text_size=gr.themes.sizes.text_sm,
        spacing_size=gr.themes.sizes.spacing_sm,
        radius_size=gr.themes.sizes.radius_sm,
        font=tuple(part.strip(" '") for part in FONT.split(",")),
        font_mono=tuple(part.strip(" '") for part in MONO.split(",")),
    )
    parameters = inspect.signature(base.set).parameters
    dark = {f"{name}_dark": value for name, value in VARIABLES.items() if f"{name}_dark" in parameters}
    return base.set(**VARIABLES, **dark, **PLAIN)
