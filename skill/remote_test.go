package skill

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// TestManifest checks that a manifest has the content that Read returns, and that a changed file is noticed.
func TestManifest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pdf")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("SKILL.md", "---\r\nname: pdf\r\ndescription: Use it.\r\n---\r\nBody.")
	write("references/a.md", "A")
	write("inner/SKILL.md", "---\nname: inner\ndescription: Use it.\n---\n")
	onDisk, _, err := One(dir).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	inFS, _, _ := FS(fstest.MapFS{"pdf/skill.md": {Data: []byte("---\nname: pdf\ndescription: Use it.\n---\nBody.")}, "pdf/x": {Data: []byte("X")}}).Load(t.Context())
	check := func(s *Skill, want string) []ManifestFile {
		t.Helper()
		list, err := s.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range list {
			names = append(names, f.Name)
			data, err := s.Read(t.Context(), f.Name)
			if err != nil || Digest(data) != f.Digest || int64(len(data)) != f.Bytes {
				t.Errorf("%s: %+v, but Read returns %q, %v", f.Name, f, data, err)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("files %s, want %s", got, want)
		}
		return list
	}
	before := check(onDisk[0], "SKILL.md inner/SKILL.md references/a.md")
	check(inFS[0], "SKILL.md x")
	inMemory := check(&Skill{Name: "memo", Description: `a "b"`, Body: "B"}, "SKILL.md")
	if data, _ := (&Skill{Name: "memo", Description: `a "b"`, Body: "B"}).Read(t.Context(), "SKILL.md"); Digest(data) != inMemory[0].Digest {
		t.Errorf("%s", data)
	}
	write("references/a.md", "B")
	if err := os.Chtimes(filepath.Join(dir, "references/a.md"), time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if after := check(onDisk[0], "SKILL.md inner/SKILL.md references/a.md"); after[2] == before[2] || after[1] != before[1] {
		t.Errorf("%+v after %+v", after, before)
	}
	write("huge", strings.Repeat("x", MaxManifestBytes))
	if list, err := onDisk[0].Manifest(); err == nil {
		t.Errorf("a manifest of more than %d bytes: %d files", MaxManifestBytes, len(list))
	}
}

// TestFrontMatter checks how YAML becomes JSON.
func TestFrontMatter(t *testing.T) {
	const text = "---\nname: pdf\ndescription: Use it now\nversion: 1.10\nn: 0x10\nday: 2026-01-02\nyes: true\nnone:\nlist: [a, 1, {b: .inf}]\nname: again\nat: &x {k: v}\nalso: *x\n---\nBody: no\n"
	const want = `{"also":{"k":"v"},"at":{"k":"v"},"day":"2026-01-02","description":"Use it now","list":["a",1,{"b":".inf"}],"n":16,"name":"pdf","none":null,"version":1.1,"yes":true}`
	fields, err := FrontMatter([]byte(text))
	if got, _ := json.Marshal(fields); err != nil || string(got) != want {
		t.Errorf("%s %v\nwant %s", got, err, want)
	}
	for _, bad := range []string{"", "Body", "---\n- a\n---\n", "---\nname: x\n", "\xff\xfe"} {
		if fields, err := FrontMatter([]byte(bad)); err == nil {
			t.Errorf("%q has the front matter %v", bad, fields)
		}
	}
}

// slowRemote never answers.
type slowRemote struct{}

func (slowRemote) Manifest() []ManifestFile { return []ManifestFile{{Name: "SKILL.md", Bytes: 1}} }

func (slowRemote) FrontMatter() map[string]any { return nil }

func (slowRemote) Read(ctx context.Context, _ string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestViewEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if page, err := View(ctx, []*Skill{{Name: "a", Remote: slowRemote{}}}, Query{Skill: "a"}); err == nil {
		t.Error(page)
	}
}

// namelessRemote has a SKILL.md without a name, and with a description that deserves a warning.
type namelessRemote struct{ slowRemote }

func (namelessRemote) Read(context.Context, string) ([]byte, error) {
	return []byte("---\ndescription: Makes tea.\n---\nBoil water."), nil
}

func TestViewNamesFatal(t *testing.T) {
	_, err := View(t.Context(), []*Skill{{Name: "a", Remote: namelessRemote{}}}, Query{Skill: "a"})
	if err == nil || !strings.Contains(err.Error(), "name-missing") {
		t.Error(err)
	}
}
