"""The HTTP side of serving: routes, requests and answers. Starlette routes, uvicorn speaks HTTP."""
