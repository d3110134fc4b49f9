package files

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// childDir is set for a child of TestKill: the folder that it writes into.
const childDir = "SLUICE_TEST_FILES_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeForEver writes one snapshot after another, until it is killed. It says when
// it has read what its predecessor left.
func writeForEver(path string) error {
	seed, err := strconv.ParseUint(os.Getenv(childDir+"_SEED"), 10, 64)
	if err != nil {
		return err
	}
	d, err := Open(path, "")
	if err != nil {
		return err
	}
	g, err := d.Group("edge")
	if err != nil {
		return err
	}
	if dangling := g.Held().Dangling(); len(dangling) > 0 {
		return fmt.Errorf("it was left with %v", dangling)
	}
	fmt.Println("reads")
	rnd := rand.New(rand.NewPCG(seed, 0))
	for {
		if err := g.Write(random(&testing.T{}, rnd)); err != nil {
			return err
		}
	}
}

// A process that is killed at any moment leaves files that a node can read, and the
// next goes on from.
func TestKill(t *testing.T) {
	path := t.TempDir()
	node := Watch(filepath.Join(path, "edge"))
	defer node.End(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 25 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+path, fmt.Sprint(childDir, "_SEED=", i))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		said, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || said != "reads\n" {
			_ = child.Process.Kill()
			t.Fatalf("child %d says %q, %v", i, said, err)
		}
		time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond) // somewhere in its work
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // it was killed
	}
	d := openDir(t, path)
	to := random(t, rnd)
	write(t, groupOf(t, d, "edge"), to)
	if diff := differ(groupOf(t, d, "edge").Held(), to); diff != "" {
		t.Errorf("the files hold otherwise: %s", diff)
	}
}
