"""The headers of a served page: it loads from and sends to its own server only, and cannot be framed by another page."""

from __future__ import annotations


def page_headers(*loaded: str) -> dict[str, str]:
    """Return the headers of every answer.

    Args:
        *loaded: The kinds of resources that the page loads from its own server, by their names in a Content-Security-Policy:
            script, style, img, connect.
    """
    own = [f"{kind}-src 'self'" for kind in loaded]
    policy = "; ".join(
        ["default-src 'none'", *own, *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors"))]
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
