"""The headers of a page that is served here: it loads and sends nothing elsewhere, and stands in no other page."""

from __future__ import annotations


def page_headers(*loaded: str) -> dict[str, str]:
    """Return the headers of every answer.

    Args:
        *loaded: What the page loads from its own server, by the names of a Content-Security-Policy: script, style, img, connect.
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
