package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/sluice-xds/sluice/test/fleet"
)

// A server that serves nothing is no server that does nothing wrong.
func TestRunAgainstNoServer(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(lis) }()
	defer func() { g.Stop(); <-done }()
	var out bytes.Buffer
	err = run(t.Context(), []string{"-addr", lis.Addr().String(), "-n", "4", "-for", "300ms", "-json"}, &out, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no client of 4 got an answer") || !strings.Contains(err.Error(), "Unimplemented: ") {
		t.Errorf("got %v", err)
	}
	var r fleet.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Clients != 4 || r.Streams < 4 || len(r.Ended) != 1 {
		t.Errorf("the report is %+v", r)
	}
}

func TestRunRefuses(t *testing.T) {
	for args, words := range map[string]string{
		"-mix 3:dance": `unknown word "dance"`,
		"-n 0":         "a fleet of 0 clients",
		"-metadata x":  "want KEY=VALUE",
		"-delta 101":   "is not between 0 and 1",
		"now":          `unexpected argument "now"`,
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v, want %q", args, err, words)
		}
	}
}
