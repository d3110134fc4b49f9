package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/sluice-xds/sluice/schema"
)

func openStore(t testing.TB, path string) *boltStore {
	t.Helper()
	s, err := OpenStore(path)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*boltStore)
}

// sameState compares all that a state holds: of resources the versions,
// references and bodies, of which Snapshot.Equal sees the first alone.
var sameState = cmp.Options{
	cmp.Comparer(func(a, b schema.Snapshot) bool {
		var all [2][]string
		for i, s := range [...]schema.Snapshot{a, b} {
			for r := range s.All() {
				all[i] = append(all[i], fmt.Sprintf("%v %q %v %x %x %v", r.Key, r.Version, r.Refs, r.Body, r.Chunk(), r.Usable))
			}
		}
		return a.Equal(b) && slices.Equal(all[0], all[1])
	}),
	cmpopts.EquateEmpty(),
}

func drawName() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom([]string{"a", "b/c", "grpc/server?xds.resource.listening_address=0.0.0.0:1", "ü", "7/x"}), rapid.StringN(1, 12, 40))
}

func drawRefs() *rapid.Generator[[]schema.Ref] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) schema.Ref {
		return schema.Ref{Key: drawKey().Draw(t, "to"), Edge: schema.Edge(rapid.IntRange(0, 3).Draw(t, "edge"))}
	}), 0, 3)
}

func drawKey() *rapid.Generator[schema.Key] {
	return rapid.Custom(func(t *rapid.T) schema.Key {
		return schema.Key{Type: schema.Type(rapid.IntRange(0, schema.NumTypes-1).Draw(t, "type")), Name: drawName().Draw(t, "name")}
	})
}

// drawSnapshot draws resources of few contents, so that releases share bodies
// and differ in references; live types have no bodies.
func drawSnapshot(live bool) *rapid.Generator[schema.Snapshot] {
	return rapid.Custom(func(t *rapid.T) schema.Snapshot {
		var all []*schema.Resource
		for range rapid.IntRange(0, 6).Draw(t, "resources") {
			k := drawKey().Draw(t, "key")
			if k.Type.Live() && !live {
				all = append(all, schema.NewLive(k))
				continue
			}
			body := rapid.SampledFrom([]string{"1", "2", "\x00\xff"}).Draw(t, "body")
			r := schema.NewResource(k, drawRefs().Draw(t, "refs"), []byte(body))
			r.Usable = live && body == "1"
			all = append(all, r)
		}
		return schema.SnapshotOf(all...)
	})
}

func drawRelease() *rapid.Generator[*Release] {
	return rapid.Custom(func(t *rapid.T) *Release {
		r := &Release{Commit: rapid.StringMatching("[0-9a-f]{40}").Draw(t, "commit"), Origins: map[schema.Key][]schema.Origin{}}
		r.Group = schema.Group{
			Name: "g", Client: schema.Client(rapid.IntRange(0, 1).Draw(t, "client")), Priority: rapid.Int().Draw(t, "priority"),
			Match:    schema.Match{ID: drawName().Draw(t, "id"), Metadata: map[string]string{"k": drawName().Draw(t, "v")}},
			After:    rapid.SliceOfN(drawName(), 0, 2).Draw(t, "after"),
			External: rapid.SliceOfN(drawName(), 0, 2).Draw(t, "external"),
			Drain:    time.Duration(rapid.Int64Range(-1, 1e12).Draw(t, "drain")), Unsupported: rapid.SampledFrom([]string{"", "waves"}).Draw(t, "unsupported"),
			Snapshot: drawSnapshot(false).Draw(t, "snapshot"),
		}
		if rapid.Bool().Draw(t, "superseded") {
			r.Left = time.Unix(rapid.Int64Range(1, 1e9).Draw(t, "left"), 0).UTC()
		}
		for res := range r.Group.Snapshot.All() {
			if rapid.Bool().Draw(t, "known") {
				r.Origins[res.Key] = []schema.Origin{{Kind: "service", Name: res.Name, Field: "f", Pos: schema.Pos{File: "a.cue", Line: 3, Col: 4}}}
			}
		}
		return r
	})
}

func drawState() *rapid.Generator[State] {
	maybe := func(t *rapid.T, what string) *Release {
		if rapid.Bool().Draw(t, what) {
			return drawRelease().Draw(t, what)
		}
		return nil
	}
	return rapid.Custom(func(t *rapid.T) State {
		st := State{Groups: map[string]GroupState{}, Live: drawSnapshot(true).Draw(t, "live")}
		for i := range rapid.IntRange(0, 2).Draw(t, "rollouts") {
			st.Rollouts = append(st.Rollouts, Rollout{Number: Number(i + 7), Commit: drawName().Draw(t, "commit"), At: started})
		}
		for _, name := range rapid.SliceOfNDistinct(drawName(), 0, 3, rapid.ID).Draw(t, "groups") {
			g := GroupState{Generation: rapid.Uint64().Draw(t, "generation"), Base: maybe(t, "base"), Target: maybe(t, "target"), Gone: rapid.Bool().Draw(t, "gone")}
			g.Trail = rapid.SliceOfN(drawRelease(), 0, 2).Draw(t, "trail")
			g.Nodes = rapid.SliceOfN(drawName(), 0, 3).Draw(t, "nodes")
			if rapid.Bool().Draw(t, "halt") {
				g.Halt = &Halt{
					Node: "n", Stage: "make", Cause: drawName().Draw(t, "cause"), On: drawKey().Draw(t, "on"), Commit: "c",
					Nack:    &schema.Nack{Type: cds, Version: "v", Nonce: "1", Code: 3, Words: drawName().Draw(t, "words"), Names: []string{"a"}, At: started},
					Origins: []schema.Origin{{Kind: "service", Name: "a", Pos: schema.Pos{File: "a.cue", Line: 1, Col: 2}}}, At: started,
				}
			}
			st.Groups[name] = g
		}
		return st
	})
}

// Whatever was saved before, what is loaded is what was saved last, and nothing
// else is left in the file.
func TestStoreRoundTrip(t *testing.T) {
	n := 0
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		s, err := OpenStore(path)
		if err != nil {
			t.Fatal(err)
		}
		bolt := s.(*boltStore)
		bolt.db.NoSync = true
		var want State
		for range rapid.IntRange(1, 3).Draw(t, "saves") {
			want = drawState().Draw(t, "state")
			if err := s.Save(want); err != nil {
				t.Fatal(err)
			}
		}
		used := map[string]bool{}
		for _, g := range want.Groups {
			for _, r := range append([]*Release{g.Base, g.Target}, g.Trail...) {
				if r == nil {
					continue
				}
				for res := range r.Group.Snapshot.All() {
					if res.Version != "" {
						used[string(resourceKey(res.Key, res.Version))] = true
					}
				}
			}
		}
		if kept := keysOf(t, bolt, resourceBucket); !slices.Equal(kept, slices.Sorted(maps.Keys(used))) {
			t.Errorf("the store has the bodies %q, want %q", kept, slices.Sorted(maps.Keys(used)))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = OpenStore(path); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameState); diff != "" {
			t.Errorf("loaded (+) is not what was saved (-):\n%s", diff)
		}
	})
}

func keysOf(t interface{ Fatal(...any) }, s *boltStore, bucket []byte) []string {
	var keys []string
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(k, _ []byte) error { keys = append(keys, string(k)); return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// storedMesh is a state worth keeping.
func storedMesh(n int) State {
	var all, live []*schema.Resource
	for i := range n {
		k := schema.Key{Type: cds, Name: fmt.Sprintf("service-%d", i)}
		e := schema.Key{Type: eds, Name: k.Name}
		all = append(all, schema.NewResource(k, []schema.Ref{{Key: e, Edge: schema.Child}}, bytes.Repeat([]byte(k.Name), 20)), schema.NewLive(e))
		live = append(live, schema.NewResource(e, nil, []byte("10.0.0.1")))
	}
	r := &Release{Commit: "c1", Group: schema.Group{Name: "g", Snapshot: schema.SnapshotOf(all...)}, Origins: map[schema.Key][]schema.Origin{}}
	return State{Groups: map[string]GroupState{"g": {Generation: 1, Base: r}}, Live: schema.SnapshotOf(live...)}
}

func loads(t *testing.T, s Store, want State) {
	t.Helper()
	got, err := s.Load()
	noError(t, err)
	if diff := cmp.Diff(want, got, sameState); diff != "" {
		t.Errorf("loaded (+) is not what was saved (-):\n%s", diff)
	}
}

// A save that fails halfway, here at a name that is too long for a key, changes
// nothing.
func TestStoreSaveIsAtomic(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	defer s.Close()
	was := storedMesh(3)
	noError(t, s.Save(was))
	for _, where := range []string{"body", "live", "group"} {
		next := storedMesh(2)
		g := next.Groups["g"]
		g.Generation = 2
		long := schema.NewResource(schema.Key{Type: eds, Name: strings.Repeat("x", bbolt.MaxKeySize+1)}, nil, []byte("1"))
		switch where {
		case "body":
			g.Base.Group.Snapshot = g.Base.Group.Snapshot.Replace(lds, schema.SetOf(long))
		case "live":
			next.Live = next.Live.Replace(eds, next.Live.Of(eds).With(long))
		case "group":
			next.Groups[long.Name] = g
		}
		next.Groups["g"] = g
		err := s.Save(next)
		if err == nil || !strings.Contains(err.Error(), "cannot be written") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: saving what does not fit: %v", where, err)
		}
		loads(t, s, was)
	}
}

func TestStoreWritesLittle(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	defer s.Close()
	noError(t, s.Save(storedMesh(2000)))
	written := func(save func()) int64 {
		before := s.db.Stats()
		save()
		after := s.db.Stats()
		d := after.Sub(&before)
		return d.TxStats.GetPageAlloc()
	}
	again := written(func() { noError(t, s.Save(storedMesh(2000))) })
	one := written(func() {
		st := storedMesh(2000)
		st.Live = st.Live.Replace(eds, st.Live.Of(eds).With(schema.NewResource(schema.Key{Type: eds, Name: "service-7"}, nil, []byte("10.0.0.2"))))
		noError(t, s.Save(st))
	})
	info, err := os.Stat(s.db.Path())
	noError(t, err)
	t.Logf("a file of %d bytes; saved again: %d bytes, with other endpoints: %d bytes", info.Size(), again, one)
	if again > 64<<10 || one > 128<<10 {
		t.Errorf("saving the same again wrote %d bytes, other endpoints %d", again, one)
	}
}

func TestStoreLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openStore(t, path)
	_, err := OpenStore(path)
	wantStoreError(t, err, path, "another sluice holds it")
	noError(t, s.Close())
	openStore(t, path).Close()
}

// wantStoreError wants one line that names the file and says what to do.
func wantStoreError(t *testing.T, err error, path string, words ...string) {
	t.Helper()
	if !errors.As(err, new(*StoreError)) {
		t.Fatalf("got %v, want a StoreError", err)
	}
	wantWords(t, err, append(words, path)...)
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
}

func TestStoreOfAnotherFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openStore(t, path)
	noError(t, s.Save(storedMesh(2)))
	noError(t, s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(formatKey, []byte("2")) }))
	noError(t, s.Close())
	before, err := os.ReadFile(path)
	noError(t, err)
	_, err = OpenStore(path)
	wantStoreError(t, err, path, "its format is 2", "start the version that wrote it")
	if strings.Contains(err.Error(), "move it away") {
		t.Errorf("it is not damaged: %v", err)
	}
	after, err := os.ReadFile(path)
	noError(t, err)
	if !bytes.Equal(before, after) {
		t.Error("a store of another version was written to")
	}
}

func TestStoreIsNoStore(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	noError(t, os.WriteFile(text, []byte(strings.Repeat("not a store\n", 4000)), 0o600))
	_, err := OpenStore(text)
	wantStoreError(t, err, text, "move it away")
	_, err = OpenStore(dir)
	wantStoreError(t, err, dir)
	_, err = OpenStore(filepath.Join(text, "below"))
	wantStoreError(t, err, filepath.Join(text, "below"), "folder")
}

// Wherever the file is damaged, the store says so in one line, or has what was
// saved: never less, and never something else.
func TestStoreDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := openStore(t, path)
	older, want := storedMesh(20), storedMesh(30)
	noError(t, s.Save(older))
	noError(t, s.Save(want))
	noError(t, s.Close())
	whole, err := os.ReadFile(path)
	noError(t, err)
	tries := 0
	try := func(what string, content []byte) {
		t.Helper()
		tries++ // a file that bbolt panicked over stays locked by this process
		path := fmt.Sprintf("%s-%d", path, tries)
		noError(t, os.WriteFile(path, content, 0o600))
		s, err := OpenStore(path)
		if err != nil {
			wantStoreError(t, err, path, "move it away")
			return
		}
		defer s.Close()
		got, err := s.Load()
		if err != nil {
			wantStoreError(t, err, path, "move it away")
			return
		}
		// If the newest of bbolt's two headers is lost, so is the newest save.
		if !cmp.Equal(want, got, sameState) && !cmp.Equal(older, got, sameState) {
			t.Errorf("%s: loaded something else: %s", what, cmp.Diff(want, got, sameState))
		}
	}
	page := os.Getpagesize()
	for at := page; at < len(whole); at += page { // cut at 0 it is a new file
		try(fmt.Sprintf("cut at %d", at), whole[:at])
		for _, off := range []int{at + 1, at + 8, at + 10, at + 40, at + page/2, at + page - 9} {
			bad := bytes.Clone(whole)
			bad[off] ^= 0x55
			try(fmt.Sprintf("flipped at %d", off), bad)
		}
		zero := bytes.Clone(whole)
		clear(zero[at : at+page])
		try(fmt.Sprintf("zeroes at %d", at), zero)
	}
}

// What is missing or damaged is named, also where bbolt itself sees nothing.
func TestStoreNamesWhatIsDamaged(t *testing.T) {
	for what, c := range map[string]struct {
		damage func(*bbolt.Cursor) error
		bucket []byte
		words  string
	}{
		"no body":      {func(c *bbolt.Cursor) error { return c.Delete() }, resourceBucket, "group g: clusters/service-"},
		"another body": {swap, resourceBucket, "it is damaged"},
		"no endpoints": {func(c *bbolt.Cursor) error { return c.Delete() }, liveBucket, "2 live resources of 1 and 3"},
		"swapped live": {swap, liveBucket, "endpoints/service-0: it is damaged"},
		"no group":     {func(c *bbolt.Cursor) error { return c.Delete() }, groupBucket, "0 groups"},
		"no counts":    {func(c *bbolt.Cursor) error { return c.Bucket().Delete(countsKey) }, metaBucket, "counts: it is missing"},
	} {
		path := filepath.Join(t.TempDir(), "state.db")
		s := openStore(t, path)
		noError(t, s.Save(storedMesh(3)))
		noError(t, s.db.Update(func(tx *bbolt.Tx) error {
			cursor := tx.Bucket(c.bucket).Cursor()
			cursor.First()
			return c.damage(cursor)
		}))
		if _, err := s.Load(); err == nil {
			t.Errorf("%s: loaded", what)
		} else {
			wantStoreError(t, err, path, c.words, "move it away")
		}
		noError(t, s.Close())
	}
}

// swap puts the second value of a bucket under its first key: both are whole.
func swap(c *bbolt.Cursor) error {
	first, _ := c.First()
	_, second := c.Next()
	return c.Bucket().Put(bytes.Clone(first), bytes.Clone(second))
}
