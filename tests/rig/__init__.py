# SPDX-License-Identifier: Apache-2.0
"""A real vLLM engine (Model Runner V2) on a CPU, for tests only; the product never imports it.

`environment` prepares a process, `engine` runs an engine in this process, `server` runs the HTTP
server, `workload` drives them with a cut of a public trace, `scene_49250` plays a real fault of
vLLM. The folder above this one is what belongs on `sys.path`; this one goes first on the
PYTHONPATH of child processes, for `sitecustomize`.
"""
