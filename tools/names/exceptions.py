import pathlib,sys
T=pathlib.Path(sys.argv[1])
def r(f,a,b,must=True):
    p=T/f; s=p.read_text()
    if a not in s:
        if must: print("MISSING",f,a[:60])
        return
    p.write_text(s.replace(a,b))
r("docs/how-to/autoreset.md","nothing. GAMMA_LAM\nlambda.\n","nothing.\n")
r("docs/reference/types.md","`Evaluation`, `Trajectory`, `Trajectory` and","`Evaluation`, both `Trajectory` classes and")
r("gym_adapters/arrayferry_envs/_minari.py","the `Trajectory` that `rollout` returns, the `Trajectory` of a `Collector`, or","the `Trajectory` that `rollout` or a `Collector` returns, or")
r("gym_adapters/arrayferry_cluster/_collector/collector.py","Iterating yields the `Trajectory`.","Iterating yields them, each a `Trajectory`.")
r("docs/reference/command.md","except in `check_functional_env`","except in `check`"); r("docs/reference/command.md","a problem, `check_functional_env` a failure","a problem, `check` a failure")
r("docs/how-to/train-save-watch.md","env_state episodes","running episodes")
r("gym_adapters/arrayferry_gym/_advantages.py","gamma: the discount factor, usually called gamma: a number","gamma: the discount factor: a number")
r("gym_adapters/arrayferry_gym/_advantages.py","lam: the weight of later errors, usually called lambda, likewise","lam: the weight of later errors, lambda, likewise")
r("tests/adversaries/mutants.py","env_state `make test`","running `make test`",False); r("tests/adversaries/mutants.py","(\"env_state","(\"running",False)
r("gym_adapters/arrayferry_envs/_engine/stepper.py","Simulators hold","Steppers hold")
r("docs/internals.md","| turn | masks: valid, reset, done, over |","| masks | of a step: valid, reset, done, over |")
r("docs/internals.md","| frame, value, static | the static part of a tree; leaves that change; all others |","| static, dynamic | parts of a tree that code is compiled for; leaves that change |")
r("docs/internals.md","| drawn, fresh | parameters of a reset; a state before its first step |","| sampled, pinned, fresh | parameters that a reset draws; those that it must not; a state before its first step |")
