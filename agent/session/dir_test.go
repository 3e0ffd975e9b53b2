package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
)

// A recording is the file of a journey, with the state that was saved at each size.
type recording struct {
	data   []byte
	sizes  []int // after each save
	ends   []int // of the lines of the records
	states []string
}

// record runs a journey with a session in a directory.
func record(t *testing.T) recording {
	t.Helper()
	path := t.TempDir()
	store, err := session.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	s := open(t, store, "a")
	file := filepath.Join(path, "a.jsonl")
	save := func(ctx context.Context, st *agent.State) error {
		if err := s.Save(ctx, st); err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		r.sizes, r.states = append(r.sizes, int(info.Size())), append(r.states, encode(t, st))
		return nil
	}
	if _, err := finish(t.Context(), journeyAgent(t.TempDir(), save), s.State); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	if r.data, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(r.data) {
		if n += len(line); bytes.HasPrefix(line, []byte(`{"crc"`)) {
			r.ends = append(r.ends, n)
		}
	}
	return r
}

// at returns the state that a file with only its first n bytes must contain: that of the last
// complete record, whose newline may be missing.
func (r *recording) at(n int) string {
	i := 0
	for i < len(r.ends) && r.ends[i]-1 <= n {
		i++
	}
	if i == 0 {
		return `{"version":1,"id":"a","messages":null,"scope":{},"tools":{},"usage":{"input_tokens":0,"output_tokens":0},"seq":0}`
	}
	return r.states[i-1]
}

// recovers opens a file and checks its contents. With more, it then saves and opens it again.
func recovers(t *testing.T, store session.Store, file string, data []byte, want string, more bool) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, store, "a")
	if got := encode(t, s.State); got != want {
		t.Fatalf("of %d bytes\nloaded %s\n  want %s", len(data), got, want)
	}
	listed := listedSeq(t, store)
	if _, recs, err := store.(session.Reader).Read(t.Context(), "a", 0); err == nil && recs[len(recs)-1].Seq != listed {
		t.Fatalf("of %d bytes: the list says that record %d is the last, the reader %d", len(data), listed, recs[len(recs)-1].Seq)
	}
	if more {
		s.State.Usage.Input++
		if err := s.Save(t.Context(), s.State); err != nil {
			t.Fatal(err)
		}
		if got := listedSeq(t, store); got != listed+1 {
			t.Fatalf("of %d bytes: the list says that record %d is the last, want %d", len(data), got, listed+1)
		}
		want = encode(t, s.State)
		shut(t, s)
		s = open(t, store, "a")
		if got := encode(t, s.State); got != want {
			t.Fatalf("of %d bytes, after another save\nloaded %s\n  want %s", len(data), got, want)
		}
	}
	shut(t, s)
}

// listedSeq returns the number of the last record of the only session in the list.
func listedSeq(t *testing.T, store session.Store) int64 {
	t.Helper()
	page, err := store.List(t.Context(), session.Query{})
	if err != nil || len(page.Infos) > 1 {
		t.Fatalf("the store lists %v, %v", page.Infos, err)
	}
	if len(page.Infos) == 0 {
		return 0
	}
	return page.Infos[0].Seq
}

// load returns the records of a file.
func load(t *testing.T, store session.Store, file string, data []byte) []session.Record {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	recs, err := log.Load(t.Context())
	if err := errors.Join(err, log.Close()); err != nil {
		t.Fatalf("of %d bytes: %v", len(data), err)
	}
	return recs
}

// TestCutOff cuts a session's file at every byte, as a crash may: at most the record that was being written
// is lost, and the session can be continued.
func TestCutOff(t *testing.T) {
	r := record(t)
	const shards = 4 // parallel, because they wait for the disk
	for shard := range shards {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			store, err := session.Dir(path)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(path, "a.jsonl")
			var before []session.Record
			for n := shard; n <= r.sizes[8]; n += shards { // the later records are of the same kinds
				near := slices.ContainsFunc(slices.Concat(r.sizes, r.ends), func(size int) bool { return n-size >= -2 && n-size <= 1 })
				more := near || n%61 == 0 || n < 60 && n%7 == 0
				recs := load(t, store, file, r.data[:n])
				if more || !reflect.DeepEqual(recs, before) { // otherwise the State is the same
					recovers(t, store, file, r.data[:n], r.at(n), more)
				}
				before = recs
			}
		})
	}
}

// TestGarbageTail appends what a crash may leave after the last record.
func TestGarbageTail(t *testing.T) {
	t.Parallel()
	r := record(t)
	path := t.TempDir()
	store, err := session.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(path, "a.jsonl")
	last := r.data[r.sizes[len(r.sizes)-2]:] // the last record's line
	damaged := bytes.Replace(last, []byte(`"seq":`), []byte(`"seq": `), 1)
	for _, n := range []int{0, len(r.sizes) / 2, len(r.sizes) - 1} {
		whole := r.data[:r.sizes[n]]
		for _, tail := range [][]byte{
			make([]byte, 5000),
			append(make([]byte, 5000), '\n'),
			[]byte("\n"),
			[]byte("\n\n\n"),
			[]byte("garbage"),
			[]byte("garbage\n"),
			[]byte("{}\n"),
			[]byte("{\"crc\":\"00000000\",\"seq\":9}\n"),
			bytes.Repeat([]byte{0xff, 0xfe, '\n'}, 100),
			damaged,
			damaged[:len(damaged)-1],
			append(append([]byte{}, damaged...), damaged...),
		} {
			recovers(t, store, file, slices.Concat(whole, tail), r.states[n], true)
		}
	}
}

// TestDamaged damages files in ways that no crash does. They are refused and not changed.
func TestDamaged(t *testing.T) {
	r := record(t)
	lines := bytes.SplitAfter(r.data, []byte("\n"))
	without := func(i int) []byte { return slices.Concat(slices.Delete(slices.Clone(lines), i, i+1)...) }
	flipped := func(i int) []byte {
		l := slices.Clone(lines)
		l[i] = bytes.Replace(l[i], []byte(`"seq"`), []byte(`"sEq"`), 1)
		return slices.Concat(l...)
	}
	const four = 7 // the line of record 4
	const understood = "{\"kitbag_session\":1,\"id\":\"a\"}\n"
	for _, row := range []struct {
		name string
		data []byte
		want string
	}{
		{"something else", []byte("dear diary\n"), "not the header of a kitbag session"},
		{"something else, binary", bytes.Repeat([]byte{0}, 100), "not the header of a kitbag session"},
		{"the header is missing", without(0), "not the header of a kitbag session"},
		{"another session", bytes.Replace(r.data, []byte(`"id":"a"`), []byte(`"id":"b"`), 1), `to session "b"`},
		{"a newer file", []byte("{\"kitbag_session\":2,\"id\":\"a\",\"more\":1}\nwhatever\n"), "newer version"},
		{"the first record is missing", without(1), `session "a" was left unchanged: line 2: record 1 is missing; restore the file from a copy`},
		{"a record is missing", without(four), "record 4 is missing; restore"},
		{"a record is damaged", flipped(four), "line 9: record 4 was edited or damaged: the checksum of line 8 is wrong; restore the file from a copy"},
		{"the first record is edited", flipped(1), "record 1 was edited or damaged: the checksum of line 2"},
		{"the last record is edited", flipped(len(lines) - 3), "was edited or damaged: the checksum of line"},
		{"the last record is missing", without(len(lines) - 3), "is missing; restore"},
		{"a record twice", slices.Concat(r.data, lines[len(lines)-3]), "follows record"},
		{"a record of another kind", []byte(understood + checked(`"seq":"one"}`)), "another version"},
	} {
		path := t.TempDir()
		store, err := session.Dir(path)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, "a.jsonl")
		if err := os.WriteFile(file, row.data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = session.Open(t.Context(), store, "a")
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		if strings.Contains(row.want, "newer") != errors.Is(err, agent.ErrNewerState) {
			t.Errorf("%s: %v", row.name, err)
		}
		unchanged(t, file, row.data)
	}
}

// TestListDamaged has files that cannot be read beside a session: the list contains all of them.
func TestListDamaged(t *testing.T) {
	path := t.TempDir()
	store, err := session.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, store, "good")
	if err := s.Save(t.Context(), s.State); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	for name, data := range map[string]string{"half.jsonl": `{"bad`, "inputs.inbox": "dear diary\n", "newer.jsonl": "{\"kitbag_session\":2,\"id\":\"newer\",\"more\":1}\n", "good.inbox": "\x00"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		page, err := store.List(t.Context(), session.Query{})
		id, _, _ := strings.Cut(name, ".")
		if i := slices.IndexFunc(page.Infos, func(in session.Info) bool { return in.ID == id }); err != nil || i < 0 || page.Infos[i].Updated.IsZero() {
			t.Errorf("%s: the list is %+v, %v", name, page.Infos, err)
		}
	}
	page, err := store.List(t.Context(), session.Query{Inputs: true})
	if err != nil || len(page.Infos) > 0 {
		t.Errorf("sessions with inputs are %+v, %v", page.Infos, err)
	}
}

// TestListOnce has a file whose name is between the names of another session's two files: the list contains each
// session once.
func TestListOnce(t *testing.T) {
	store, err := session.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "a.j"} {
		s := open(t, store, id)
		if err := s.Save(t.Context(), s.State); err != nil {
			t.Fatal(err)
		}
		shut(t, s)
	}
	if _, err := session.Send(t.Context(), store, "a", "input", agent.Interrupt{}); err != nil {
		t.Fatal(err)
	}
	page, err := store.List(t.Context(), session.Query{})
	if err != nil || len(page.Infos) != 2 || page.Infos[0].ID == page.Infos[1].ID {
		t.Errorf("the list is %+v, %v, want a and a.j", page.Infos, err)
	}
}

// checked returns a line with the right checksum.
func checked(body string) string {
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Sprintf("{\"crc\":\"%08x\",%s\n", sum, body)
}

func unchanged(t *testing.T, file string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file %s was changed: %v", file, err)
	}
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "sessions")
	store, err := session.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, store, "a")
	if err := s.Save(t.Context(), s.State); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{path: fs.ModeDir | 0o700, filepath.Join(path, "a.jsonl"): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// TestStrangeFiles puts links and directories where sessions would be.
func TestStrangeFiles(t *testing.T) {
	path, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside.jsonl")
	store, err := session.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	content := []byte("{\"kitbag_session\":1,\"id\":\"link\"}\n")
	if err := os.WriteFile(outside, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(path, "link.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(path, "folder.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "notes.txt"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"link", "folder"} {
		if _, err := session.Open(t.Context(), store, id); err == nil {
			t.Errorf("%s was opened", id)
		}
		if err := store.Delete(t.Context(), id); err == nil {
			t.Errorf("%s was deleted", id)
		}
	}
	// A header was written, completely or in part, and no record.
	for id, data := range map[string]string{"header": "{\"kitbag_session\":1,\"id\":\"header\"}\n", "part": "{\"kit", "none": ""} {
		if err := os.WriteFile(filepath.Join(path, id+".jsonl"), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := store.List(t.Context(), session.Query{}); err != nil || len(page.Infos) > 0 {
		t.Errorf("listed %v, %v", page.Infos, err)
	}
	unchanged(t, outside, content)
}

// TestRemoved removes or replaces the file of an open session: saving fails instead of writing to the old file.
func TestRemoved(t *testing.T) {
	for _, replace := range []bool{false, true} {
		path := t.TempDir()
		store, err := session.Dir(path)
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, store, "a")
		if err := s.Save(t.Context(), s.State); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, "a.jsonl")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if replace {
			if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.State.Usage.Input++
		if err := s.Save(t.Context(), s.State); !errors.Is(err, session.ErrConflict) {
			t.Errorf("replace=%v: %v, want ErrConflict", replace, err)
		}
		shut(t, s)
		if replace {
			unchanged(t, file, []byte("x"))
		}
	}
}

// TestOtherProcess has another process keep a session open. It can be opened as soon as that process is killed,
// and not before.
func TestOtherProcess(t *testing.T) {
	for _, kind := range []string{"dir", "sealed"} {
		dir := t.TempDir()
		if _, killed := process(t, dir, kind, 3); !killed {
			t.Fatal("the process was not killed")
		}
		stop := hold(t, dir, kind)
		if _, err := openJourney(dir, kind); !errors.Is(err, session.ErrConflict) {
			t.Errorf("%s: open in another process: %v, want ErrConflict", kind, err)
		}
		stop()
		s, err := openJourney(dir, kind)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.State.Messages) == 0 {
			t.Errorf("%s: the session is empty", kind)
		}
		shut(t, s)
	}
}

func ExampleDir() {
	path, err := os.MkdirTemp("", "sessions")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(path)
	store, err := session.Dir(path)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	s, err := session.Open(ctx, store, "customer-7")
	if err != nil {
		panic(err)
	}
	defer s.Close()
	_, err = session.Open(ctx, store, "customer-7")
	fmt.Println(errors.Is(err, session.ErrConflict))
	// Output: true
}
