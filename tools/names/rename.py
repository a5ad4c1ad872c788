"""usage: rename.py TREE"""
import re,sys,pathlib,subprocess
T=pathlib.Path(sys.argv[1])
files=[T/f for f in subprocess.check_output(["git","ls-files"],cwd=T,text=True).split("\n") if f.endswith((".py",".md",".patch",".toml",".yml",".ipynb"))]
texts={f:f.read_text() for f in files if f.is_file()}
def rel(f): return str(f.relative_to(T))
def sub(pattern,new,where=None,unless=None,flags=0,lines=None):
    n=0
    for f,t in texts.items():
        r=rel(f)
        if r=="CHANGELOG.md": continue
        if where and not re.search(where,r): continue
        if unless and re.search(unless,r): continue
        if lines is None: new_t,k=re.subn(pattern,new,t,flags=flags)
        else:
            out=[];k=0
            for l in t.split("\n"):
                if not re.search(lines,l):
                    l,j=re.subn(pattern,new,l); k+=j
                out.append(l)
            new_t="\n".join(out)
        if k: texts[f]=new_t; n+=k
    print(f"{n:5} {pattern} -> {new}")
# 1. gamma, lam
sub(r"\bdiscount\b(?!( factor|ed))","gamma",
    where=r"_advantages\.py|_evaluate\.py|_evaluate_options\.py|_compiled/evaluation\.py|test_first_calls|test_wrong_arguments|tests/definitions|test_rollouts|test_evaluate\.py|test_settings|test_advantages|docs/tutorial/agent|how-to/(autoreset|many-trainings|train-save-watch)|examples/|benchmarks/",
    lines=r"after\.discount|with a discount for|\"a discount|the discount to|`discount` is often")
sub(r"\bdecay\b","lam",where=r"\.(py|md)$",lines=r"a decay that|`decay`$|^  decay: the weight")
sub(r"`discount` is often called gamma, `decay`","GAMMA_LAM",where="autoreset")
sub(r"\bDISCOUNT, DECAY\b","GAMMA, LAM",where="curves"); sub(r"\bDISCOUNT\b","GAMMA",where="curves"); sub(r"\bDECAY\b","LAM",where="curves")
sub(r"\bgae_lambda\b","lam",where="examples/")
# 2. classes
sub(r"\bRunning\b(?! means)","EnvState",where=r"arrayferry_envs|^tests|^docs|^examples|^benchmarks",lines=r"Running (the|a|it)\b|\"Running|Running [a-z]")
sub(r"\bTransition\b","Trajectory"); 
sub(r"\bTrajectories\b","Trajectory",where=r"arrayferry_cluster|_minari|^tests|^docs|^examples|^benchmarks|^README",lines=r"\"Trajectories\"|^#|^\"\"\"Trajectories|Trajectories (of|are|that)\b(?! `)|^Trajectories ")
sub(r"\bTurn\b","StepMasks",where=r"_episodes\.py|docs/reference|test_")
sub(r"\brule\.turn\(","rule.masks("); sub(r"def turn\(self, over","def masks(self, over"); sub(r"\bepisodes\.turn\b","episodes.masks"); sub(r"(?<=\w)\.turn\b(?!\()",".masks",where=r"wrappers/_vector|_bridged|tests/gym_adapters/arrayferry_gym|_cluster/"); sub(r"^    turn: StepMasks","    masks: StepMasks",flags=re.M); sub(r"\bself\.turn\b","self.masks",where=r"_episodes\.py"); sub(r"\bturn\b","masks",where=r"_simulators/engine\.py|_policies/stepping\.py|gym_adapters/arrayferry_gym/_episodes\.py|_audit/_record\.py")
sub(r"\bRenewal\b","AutoReset"); sub(r"_simulators([./])renewal\b",r"_simulators\1autoreset"); sub(r"from \.renewal","from .autoreset"); sub(r"\brenewal\b","autoreset",where=r"_simulators/|_compiled/functions")
sub(r"\bLayout\b","TreeSpec",lines=r"Layout of|^#|Layouts")
sub(r"\b_tree([./])layout\b",r"_tree\1spec")
sub(r"\bFrame\b","StaticPart",where=r"arrayferry_envs|^tests|docs/internals"); sub(r"\bVALUE\b","DYNAMIC",where=r"arrayferry_envs"); sub(r"\bframed\b","partitioned",where=r"arrayferry_envs")
sub(r"GAMMA_LAM","GAMMA_LAM",where="autoreset")
# 3. state of environments
sub(r"\bcarry\.running\b","carry.env_state")
sub(r"\brunning\b(?! (mean|var|stat|eval|moment|sum|median|process|for|in|on|at|the)\b)","env_state",
    where=r"arrayferry_envs/(_simulators|_served|_compiled|_onnx\.py|_around|_contract)|_kernels/(statistics|moments)\.py|docs/how-to/(compiled|wrappers|many|train|export|one)|docs/tutorial/compiled|docs/reference/functional|tests/gym_adapters/arrayferry_envs|tests/bridges/functional|tests/together|tests/adversaries|benchmarks|examples",
    lines=r"\"running\" for|status|is running|are running|not running|still running")
# 4. parameters: static and dynamic, pinned and sampled
P=r"arrayferry_envs/(_simulators|_served|_compiled|_contract|_around/seeded|_onnx\.py)"
sub(r"\bis_value\b","is_dynamic",where=r"arrayferry_envs|^tests")
sub(r"\bframe\b","static_part",where=r"arrayferry_envs/(_simulators|_served|_compiled|_contract|_onnx\.py)",unless="_frozen_lake|_grid",lines=r"frame of|a frame|frames")
sub(r"\bcheck_fixed\b","check_pinned"); sub(r"\b_fixed\b","_pinned",where=P)
sub(r"\bfixed\b","pinned",where=P,lines=r"shapes are fixed|\*\*fixed|def fixed|fixed\(x\)|fixed shapes")
sub(r"\bDrawnParams\b","SampledParams"); sub(r"_contract([./])drawn\b",r"_contract\1sampled"); sub(r"from \.drawn","from .sampled")
sub(r"\bdrawn\b","sampled",where=r"arrayferry_envs/(_served|_contract/(params|drawn|checked|check|functional_env)|_around/seeded)",lines=r"numbers? (was|were|is|are) drawn")
# 5. simulators
sub(r"\b_simulators\b","_engine"); sub(r"\b(Jax|Numpy|Translated)Simulator\b",r"\1Stepper"); sub(r"\b(jax|numpy)_simulator\b",r"\1_stepper")
sub(r"\bSimulator\b","Stepper",where=r"arrayferry_envs|docs/internals|^tests/(gym_adapters/arrayferry_envs|together|adversaries)"); sub(r"\b_simulator\b","_stepper",where=r"arrayferry_envs|^tests"); sub(r"_engine([./])simulator\b",r"_engine\1stepper"); sub(r"from \.simulator","from .stepper")
sub(r"\bsimulator\b","stepper",where=r"arrayferry_envs/")
# 6. functions
sub(r"\bcheck, Second","check_functional_env, Second",where="test_check_env")
C=r"test_environments\.py|_check_env\.py|test_numbers_that|test_rewards\.py|test_needed_library|test_repeat_action|docs/tutorial/compiled|docs/how-to/environment|docs/all\.md|_contract/check\.py|arrayferry_envs/test_seeds|arrayferry_envs/test_check_env|_audit/_suites|arrayferry_envs/__init__|reference/functional"
sub(r"(?<![\w.])check(?=\()","check_functional_env",where=C)
sub(r"^(    )check,$",r"\1check_functional_env,",where=C,flags=re.M)
sub(r"(import (?:[\w, ]*, )?)check\b(?!_)",r"\1check_functional_env",where=C,lines="zzz")
sub(r"arrayferry_envs\.check\b","arrayferry_envs.check_functional_env")
sub(r"`check`","`check_functional_env`",where=r"arrayferry_envs|docs/|README|arrayferry_gym|tests/gym_adapters/arrayferry_envs|_check_env")
sub(r'"Running"','"EnvState"',where=r"arrayferry_envs/__init__"); sub(r'"Trajectories"','"Trajectory"',where=r"arrayferry_cluster/__init__")
sub(r'"check"','"check_functional_env"',where=r"arrayferry_envs/__init__")
# 7. Collector
sub(r"\bto\b(?=: Target = \"numpy\")","xp",where="_collector/collector"); sub(r"^        to: the library",r"        xp: the library",where="_collector/collector",flags=re.M); sub(r"af\.converter\(to, device","af.converter(xp, device",where="_collector/collector")
sub(r'"to": "torch"','"xp": "torch"',where=r"ppo_cluster|test_collector"); sub(r'\bto="torch"','xp="torch"',where=r"arrayferry_cluster/test_collector|ppo_cluster")

for f,t in texts.items(): f.write_text(t)

import shutil
def move(a,b):
    if (T/a).exists(): subprocess.check_call(["git","mv",a,b],cwd=T)
E_="gym_adapters/arrayferry_envs/"
move(E_+"_simulators",E_+"_engine")
for a,b in {"simulator":"stepper","jax_simulator":"jax_stepper","numpy_simulator":"numpy_stepper","renewal":"autoreset"}.items(): move(E_+f"_engine/{a}.py",E_+f"_engine/{b}.py")
move(E_+"_contract/drawn.py",E_+"_contract/sampled.py"); move("core/arrayferry/_tree/layout.py","core/arrayferry/_tree/spec.py")
