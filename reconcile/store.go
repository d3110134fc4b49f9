package reconcile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/sluice-xds/sluice/schema"
)

// Store keeps what a restart needs. Save is atomic: after a crash, Load gives
// what one Save wrote, in full.
type Store interface {
	Load() (State, error)
	Save(State) error
	Close() error
}

// State is all that is kept.
type State struct {
	Groups map[string]GroupState
	Live   schema.Snapshot // bodies of the live types of all groups
	Operators
}

// GroupState is what is kept of a group.
type GroupState struct {
	Generation uint64
	Base       *Release // the last that the group finished
	Target     *Release // the one under way, if any
	// Trail is what was superseded and may still be held by some node.
	Trail []*Release
	Halt  *Halt
	// Gone is set while the newest commit does not name the group.
	Gone bool
	Asked
	// Nodes are the ids that were connected when the state was written. After a
	// restart a rollout waits for them to come back.
	Nodes []string
}

// Release is what one commit means for one group.
type Release struct {
	Commit string
	Group  schema.Group
	// Origins are the lines that each resource was made from: the first is that
	// of the whole, and others are of whole parts.
	Origins map[schema.Key][]schema.Origin
	// Left is when it was superseded; zero before that.
	Left time.Time
}

// StoreError says that the store cannot be used, and what to do.
type StoreError struct {
	Path string
	Why  string
	Err  error
}

func (e *StoreError) Error() string { return fmt.Sprintf("cannot use the store %s: %s", e.Path, e.Why) }
func (e *StoreError) Unwrap() error { return e.Err }

// format is the layout that this version reads and writes.
const format = "1"

var (
	metaBucket     = []byte("meta")
	groupBucket    = []byte("groups")
	resourceBucket = []byte("resources")
	liveBucket     = []byte("live")
	formatKey      = []byte("format")
	countsKey      = []byte("counts")
	operatorsKey   = []byte("operators")

	buckets = [...][]byte{metaBucket, groupBucket, resourceBucket, liveBucket}
)

type boltStore struct{ db *bbolt.DB }

// OpenStore opens or creates the store in a file. Another process that holds it
// is an error, after a second.
func OpenStore(path string) (Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, &StoreError{path, "its folder cannot be made: " + err.Error(), err}
	}
	var db *bbolt.DB
	err := survive(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, &StoreError{path, "another sluice holds it; stop that one, or choose another with --store", err}
	case errors.Is(err, fs.ErrPermission):
		return nil, &StoreError{path, "permission denied; choose another with --store", err}
	case err != nil:
		return nil, damaged(path, err)
	}
	newer := ""
	err = survive(func() error {
		return db.Update(func(tx *bbolt.Tx) (err error) { newer, err = prepare(tx); return err })
	})
	switch {
	case newer != "":
		err = &StoreError{path, fmt.Sprintf("its format is %s, and this version of sluice knows %s; start the version that wrote it, or choose another with --store", newer, format), nil}
	case err != nil:
		err = damaged(path, err)
	default:
		return &boltStore{db}, nil
	}
	db.Close()
	return nil, err
}

// prepare makes a store of an empty file, and changes nothing in any other.
func prepare(tx *bbolt.Tx) (other string, err error) {
	if first, _ := tx.Cursor().First(); first == nil {
		for _, b := range buckets {
			if _, err := tx.CreateBucket(b); err != nil {
				return "", err
			}
		}
		return "", errors.Join(tx.Bucket(metaBucket).Put(formatKey, []byte(format)), save(tx, State{}))
	}
	for _, b := range buckets {
		if tx.Bucket(b) == nil {
			return "", fmt.Errorf("it has no %s: it is damaged, or no store of sluice", b)
		}
	}
	if f := tx.Bucket(metaBucket).Get(formatKey); string(f) != format {
		return string(f), fmt.Errorf("its format is %q", f)
	}
	return "", nil
}

func damaged(path string, err error) error {
	return &StoreError{path, fmt.Sprintf("%v; move it away to start from Git alone (nodes then keep what they hold until they are seen)", err), err}
}

func (s *boltStore) Close() error { return s.db.Close() }

// Stored forms. A snapshot is kept as a list of entries, bodies apart and once.
type (
	storedGroup struct {
		Generation uint64           `json:"generation"`
		Base       *storedRelease   `json:"base,omitempty"`
		Target     *storedRelease   `json:"target,omitempty"`
		Trail      []*storedRelease `json:"trail,omitempty"`
		Halt       *Halt            `json:"halt,omitempty"`
		Gone       bool             `json:"gone,omitempty"`
		Nodes      []string         `json:"nodes,omitempty"`
		Asked      Asked            `json:"asked,omitzero"`
	}
	storedRelease struct {
		Commit  string        `json:"commit"`
		Group   schema.Group  `json:"group"`
		Entries []storedEntry `json:"entries"`
		Left    time.Time     `json:"left,omitzero"`
	}
	// A storedEntry has its own references: two groups may know one body by
	// references that differ in what may dangle.
	storedEntry struct {
		schema.Key
		Version schema.Version  `json:"version"`
		Refs    []schema.Ref    `json:"refs,omitempty"`
		Origins []schema.Origin `json:"origins,omitempty"`
	}
	storedBody struct {
		Body   []byte `json:"body"`
		Usable bool   `json:"usable,omitempty"`
	}
	storedLive struct {
		Version schema.Version `json:"version"`
		Refs    []schema.Ref   `json:"refs,omitempty"`
		storedBody
	}
	// storedCounts tell what is missing from what is not there.
	storedCounts struct{ Groups, Live int }
)

// seal puts a checksum of key and value before a value: a disk that forgets must
// not become what the fleet is served.
func seal(key []byte, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, checksum(key, b)), b...), nil
}

func unseal(key, b []byte, v any) error {
	switch {
	case b == nil:
		return errors.New("it is missing")
	case len(b) < 4 || checksum(key, b[4:]) != binary.BigEndian.Uint32(b):
		return errors.New("it is damaged")
	}
	return json.Unmarshal(b[4:], v)
}

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(key), crc32.IEEETable, value)
}

// survive calls f, and makes an error of what bbolt does when pages are damaged
// or a file was cut short: it panics, or reads memory that is not there.
func survive(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the file is damaged (%v)", r)
		}
	}()
	return f()
}

func resourceKey(k schema.Key, v schema.Version) []byte {
	return fmt.Appendf(nil, "%d/%s/%s", k.Type, v, k.Name)
}

func (s *boltStore) Save(st State) error {
	err := survive(func() error { return s.db.Update(func(tx *bbolt.Tx) error { return save(tx, st) }) })
	if err != nil {
		return &StoreError{s.db.Path(), "it cannot be written: " + err.Error(), err}
	}
	return nil
}

func save(tx *bbolt.Tx, st State) error {
	w := writer{resources: tx.Bucket(resourceBucket), used: map[string]bool{}}
	meta := map[string]any{string(countsKey): storedCounts{len(st.Groups), st.Live.Len()}, string(operatorsKey): st.Operators}
	groups, live := map[string]any{}, map[string]any{}
	for name, g := range st.Groups {
		sg := storedGroup{Generation: g.Generation, Base: w.release(g.Base), Target: w.release(g.Target), Halt: g.Halt, Gone: g.Gone, Nodes: g.Nodes, Asked: g.Asked}
		for _, r := range g.Trail {
			sg.Trail = append(sg.Trail, w.release(r))
		}
		groups[name] = sg
	}
	for r := range st.Live.All() {
		live[fmt.Sprintf("%d/%s", r.Type, r.Name)] = storedLive{r.Version, r.Refs, storedBody{r.Body, r.Usable}}
	}
	return cmp.Or(
		w.err,
		write(tx.Bucket(metaBucket), meta),
		write(tx.Bucket(groupBucket), groups), sweep(tx.Bucket(groupBucket), groups),
		write(tx.Bucket(liveBucket), live), sweep(tx.Bucket(liveBucket), live),
		sweep(w.resources, w.used),
	)
}

type writer struct {
	resources *bbolt.Bucket
	used      map[string]bool
	err       error
}

func (w *writer) release(r *Release) *storedRelease {
	if r == nil {
		return nil
	}
	out := &storedRelease{Commit: r.Commit, Group: r.Group, Left: r.Left}
	for res := range r.Group.Snapshot.All() {
		e := storedEntry{Key: res.Key, Version: res.Version, Refs: res.Refs, Origins: r.Origins[res.Key]}
		out.Entries = append(out.Entries, e)
		if res.Version != "" {
			w.body(res)
		}
	}
	return out
}

// body writes a resource that is not there yet: content never changes.
func (w *writer) body(r *schema.Resource) {
	k := resourceKey(r.Key, r.Version)
	if w.used[string(k)] || w.err != nil {
		return
	}
	w.used[string(k)] = true
	if w.resources.Get(k) != nil {
		return
	}
	b, err := seal(k, storedBody{r.Body, r.Usable})
	if err == nil {
		err = w.resources.Put(k, b)
	}
	w.err = err
}

// write puts values into a bucket, where they differ from what is there.
func write(b *bbolt.Bucket, values map[string]any) error {
	for k, v := range values {
		sealed, err := seal([]byte(k), v)
		if err != nil {
			return err
		}
		if bytes.Equal(b.Get([]byte(k)), sealed) {
			continue
		}
		if err := b.Put([]byte(k), sealed); err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes from a bucket what is not used.
func sweep[V any](b *bbolt.Bucket, used map[string]V) error {
	var gone [][]byte
	err := b.ForEach(func(k, _ []byte) error {
		if _, ok := used[string(k)]; !ok {
			gone = append(gone, append([]byte(nil), k...))
		}
		return nil
	})
	for _, k := range gone {
		err = errors.Join(err, b.Delete(k))
	}
	return err
}

func (s *boltStore) Load() (State, error) {
	var st State
	err := survive(func() error {
		return s.db.View(func(tx *bbolt.Tx) (err error) {
			st, err = load(tx)
			return err
		})
	})
	if err != nil {
		return State{}, damaged(s.db.Path(), err)
	}
	return st, nil
}

func load(tx *bbolt.Tx) (State, error) {
	st := State{Groups: map[string]GroupState{}}
	r := reader{tx.Bucket(resourceBucket)}
	var counts storedCounts
	if err := unseal(countsKey, tx.Bucket(metaBucket).Get(countsKey), &counts); err != nil {
		return st, fmt.Errorf("%s: %w", countsKey, err)
	}
	if err := unseal(operatorsKey, tx.Bucket(metaBucket).Get(operatorsKey), &st.Operators); err != nil {
		return st, fmt.Errorf("%s: %w", operatorsKey, err)
	}
	err := tx.Bucket(groupBucket).ForEach(func(k, v []byte) error {
		g, err := r.group(k, v)
		if err != nil {
			return fmt.Errorf("group %s: %w", k, err)
		}
		st.Groups[string(k)] = g
		return nil
	})
	if err != nil {
		return st, err
	}
	var live []*schema.Resource
	err = tx.Bucket(liveBucket).ForEach(func(k, v []byte) error {
		number, name, _ := strings.Cut(string(k), "/")
		t, err := strconv.ParseUint(number, 10, 8)
		if err != nil || t >= schema.NumTypes {
			return fmt.Errorf("%q is no live resource", k)
		}
		key := schema.Key{Type: schema.Type(t), Name: name}
		var l storedLive
		if err := unseal(k, v, &l); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		live = append(live, l.restore(key, l.Version, l.Refs))
		return nil
	})
	st.Live = schema.SnapshotOf(live...)
	if got := (storedCounts{len(st.Groups), st.Live.Len()}); err == nil && got != counts {
		err = fmt.Errorf("it has %d groups and %d live resources of %d and %d: it is damaged", got.Groups, got.Live, counts.Groups, counts.Live)
	}
	return st, err
}

func (s storedBody) restore(k schema.Key, v schema.Version, refs []schema.Ref) *schema.Resource {
	r := schema.Restore(k, v, refs, s.Body)
	r.Usable = s.Usable
	return r
}

type reader struct{ resources *bbolt.Bucket }

func (r reader) group(k, v []byte) (GroupState, error) {
	var sg storedGroup
	if err := unseal(k, v, &sg); err != nil {
		return GroupState{}, err
	}
	g := GroupState{Generation: sg.Generation, Halt: sg.Halt, Gone: sg.Gone, Nodes: sg.Nodes, Asked: sg.Asked}
	var errs [2]error
	g.Base, errs[0] = r.release(sg.Base)
	g.Target, errs[1] = r.release(sg.Target)
	for _, t := range sg.Trail {
		rel, err := r.release(t)
		if err != nil {
			return GroupState{}, err
		}
		g.Trail = append(g.Trail, rel)
	}
	return g, errors.Join(errs[:]...)
}

func (r reader) release(s *storedRelease) (*Release, error) {
	if s == nil {
		return nil, nil
	}
	out := &Release{Commit: s.Commit, Group: s.Group, Origins: map[schema.Key][]schema.Origin{}, Left: s.Left}
	var all []*schema.Resource
	for _, e := range s.Entries {
		if len(e.Origins) > 0 {
			out.Origins[e.Key] = e.Origins
		}
		if e.Version == "" {
			all = append(all, schema.NewLive(e.Key))
			continue
		}
		var body storedBody
		at := resourceKey(e.Key, e.Version)
		if err := unseal(at, r.resources.Get(at), &body); err != nil {
			return nil, fmt.Errorf("%s at %s: %w", e.Key, e.Version, err)
		}
		all = append(all, body.restore(e.Key, e.Version, e.Refs))
	}
	out.Group.Snapshot = schema.SnapshotOf(all...)
	return out, nil
}
