package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cuelang.org/go/cmd/cue/cmd"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-xds/sluice/schema/compile"
)

var update = flag.Bool("update", false, "rewrite the golden parts of testdata/*.txtar")

func TestMain(m *testing.M) {
	compile.WorkerMain()
	testscript.Main(m, map[string]func(){"sluice": main, "cue": func() { os.Exit(cmd.Main()) }})
}

// TestScripts runs the real binary. PATH holds nothing else: no git, no shell.
func TestScripts(t *testing.T) { testscript.Run(t, scripts(t, "testdata")) }

// scripts are the scripts of a directory, and what they may use.
func scripts(t *testing.T, dir string) testscript.Params {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	return testscript.Params{
		Dir:                 dir,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"run", "state", "config"} {
				if err := os.MkdirAll(filepath.Join(env.WorkDir, name), 0o700); err != nil {
					return err
				}
			}
			env.Setenv("XDG_RUNTIME_DIR", filepath.Join(env.WorkDir, "run"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			env.Setenv("EXAMPLES", examples)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"commit": scriptCommit, "origin": scriptOrigin, "exits": scriptExits, "await": scriptAwait, "occupy": scriptOccupy,
			"replace": scriptReplace, "conforms": scriptConforms,
		},
	}
}

// scriptCommit commits all that is in a directory and sets COMMIT: commit DIR.
// Equal contents have equal hashes, since the author and the time are fixed.
func scriptCommit(ts *testscript.TestScript, _ bool, args []string) {
	h, err := commitAll(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Setenv("COMMIT", h)
}

func commitAll(dir string) (string, error) {
	repo, err := git.PlainOpen(dir)
	if errors.Is(err, git.ErrRepositoryNotExists) {
		repo, err = git.PlainInitWithOptions(dir, &git.PlainInitOptions{
			InitOptions: git.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName("main")},
		})
	}
	if err != nil {
		return "", err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return "", err
	}
	if err := tree.AddWithOptions(&git.AddOptions{All: true}); err != nil {
		return "", err
	}
	n := 0
	if head, err := repo.Head(); err == nil {
		all, err := repo.Log(&git.LogOptions{From: head.Hash()})
		if err != nil {
			return "", err
		}
		_ = all.ForEach(func(*object.Commit) error { n++; return nil })
	}
	author := &object.Signature{Name: "A. Author", Email: "author@example.com", When: time.Unix(1700000000+int64(n), 0).UTC()}
	h, err := tree.Commit(fmt.Sprintf("change %d", n), &git.CommitOptions{Author: author, Committer: author})
	return h.String(), err
}

// scriptOrigin makes HEAD what origin/HEAD is, as after a clone: origin DIR.
func scriptOrigin(ts *testscript.TestScript, _ bool, args []string) {
	repo, err := git.PlainOpen(ts.MkAbs(args[0]))
	ts.Check(err)
	head, err := repo.Head()
	ts.Check(err)
	main := plumbing.NewRemoteReferenceName("origin", "main")
	ts.Check(repo.Storer.SetReference(plumbing.NewHashReference(main, head.Hash())))
	ts.Check(repo.Storer.SetReference(plumbing.NewSymbolicReference(plumbing.NewRemoteHEADReferenceName("origin"), main)))
}

// scriptExits wants an exit code: exits CODE COMMAND ARGS.
func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scriptAwait runs a command until its output matches: await REGEXP COMMAND ARGS.
func scriptAwait(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...)
		if matches(args[0], ts.ReadFile("stdout")+ts.ReadFile("stderr")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no %q in\n%s%s", args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
}

// scriptOccupy listens on a free port for the rest of the script: occupy VARIABLE.
func scriptOccupy(ts *testscript.TestScript, _ bool, args []string) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { lis.Close() })
	ts.Setenv(args[0], lis.Addr().String())
}

// scriptReplace changes a file: replace FILE OLD NEW. OLD must be there; \n and \t
// are a line's end and a tab.
func scriptReplace(ts *testscript.TestScript, _ bool, args []string) {
	plain := strings.NewReplacer(`\n`, "\n", `\t`, "\t")
	ts.Check(replaceIn(ts.MkAbs(args[0]), plain.Replace(args[1]), plain.Replace(args[2])))
}
