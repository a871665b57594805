"""The page of those who have not signed in or are not allowed. It has no script and loads nothing."""

from collections.abc import Sequence
from html import escape

from inspector.media.streamlit.server.paths import LOGOUT, SIGN_IN

HEADERS = {
    "Cache-Control": "no-store",
    # A click on a button goes to the provider's site.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
}
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sharding Inspector</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.6 "Source Sans", system-ui, sans-serif; margin: 6rem auto; max-width: 40rem;
        padding: 0 1rem; color: light-dark(#31333f, #fafafa); background: light-dark(#fff, #0e1117); }}
h1 {{ font-size: 1.75rem; font-weight: 600; }}
button {{ font: inherit; cursor: pointer; margin: .25rem 0; padding: .25rem 1rem; border-radius: .5rem;
         border: 1px solid #b3382f; color: #fff; background: #b3382f; }}
button:hover, button:focus-visible {{ background: #8f2b24; }}
[role=alert] {{ padding: .75rem 1rem; border-radius: .5rem; overflow-wrap: anywhere;
               color: light-dark(#7d353b, #ffdede); background: light-dark(#ffecec, #3e2328); }}
</style>
</head>
<body>
<main>
<h1>Sharding Inspector</h1>
{content}
</main>
</body>
</html>
"""


def html(providers: Sequence[str], problem: str | None) -> str:
    """Return the page: a button for each provider, or why a signed-in user is not allowed."""
    if problem is not None:
        sentence = f'<p role="alert">{escape(problem)}.</p>'
        return _PAGE.format(content=sentence + _button(LOGOUT, "Sign out"))
    buttons = [
        _button(SIGN_IN, "Sign in" if name == "default" else f"Sign in with {name}", provider=name)
        for name in providers
    ]
    return _PAGE.format(content="<p>Sign in to use this server.</p>" + "".join(buttons))


def _button(action: str, label: str, **fields: str) -> str:
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in fields.items()
    )
    return f'<form action="{action}">{hidden}<button>{escape(label)}</button></form>'
