package main

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// TestGuides sends AGENTS.md and CLAUDE.md, nearest first, and only in a directory that is trusted.
func TestGuides(t *testing.T) {
	root := workspace(t)
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("AGENTS.md", "use tabs")
	write("repo/.git/HEAD", "ref: refs/heads/main")
	write("repo/AGENTS.md", "use spaces")
	write("repo/sub/CLAUDE.md", "use both")
	write("repo/sub/AGENTS.md", " ")
	t.Chdir(filepath.Join(root, "repo", "sub"))
	sent := func(args ...string) (prompt, stderr string) {
		t.Helper()
		s := serve(t, openaitest.Text("ok"))
		got := kitbag(t.Context(), append(append([]string{"run"}, args...), "go")...)
		if got.code != exitDone {
			t.Fatalf("%+v", got)
		}
		return s.Requests()[0].Messages[0].Text(), got.stderr
	}
	prompt, stderr := sent()
	if strings.Contains(prompt, "use ") || !strings.Contains(stderr, "CLAUDE.md are not trusted") {
		t.Errorf("without trust the prompt is %q\n%s", prompt, stderr)
	}
	prompt, _ = sent("--trust")
	near, far := strings.Index(prompt, "use both"), strings.Index(prompt, "use spaces")
	if near < 0 || far < near || strings.Contains(prompt, "use tabs") {
		t.Errorf("the prompt is %q", prompt)
	}
	c, err := readProjectConfig()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := consentFile(c)
	c.guides[0].text += "!"
	if after, _ := consentFile(c); after == before {
		t.Error("a guide that has changed is still trusted")
	}
	write("repo/sub/AGENTS.md", strings.Repeat("x", maxGuides-4))
	if guides, err := projectGuides(filepath.Join(root, "repo", "sub")); err != nil || len(guides) != 1 {
		t.Errorf("%v: %d guides over the bound", err, len(guides))
	}
}

// TestAttachments has rows of messages, and what they add.
func TestAttachments(t *testing.T) {
	workspace(t)
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"a.go": "package a\n", "p.png": picture.String(), "broken.png": picture.String()[:10],
		"bin": "\x00\x01", "long.txt": strings.Repeat("x", maxAttachedText+1), "huge.txt": strings.Repeat("x", maxAttachedPicture+100)} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"notes.md": outside, "docs": filepath.Dir(outside)} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"see @notes.md":             "error: @notes.md: it is a link to ",
		"see @docs/key":             "error: @docs/key: it is a link to ",
		"see @./a.go":               "The content of ./a.go:\n\npackage a\n",
		"see @a.go.":                "The content of a.go:\n\npackage a\n",
		"@a.go and @a.go":           "The content of a.go:\n\npackage a\n",
		"me@a.go @nobody @ @/ a.go": "",
		"@p.png":                    "image/png",
		"@broken.png":               "error: @broken.png",
		"@bin":                      "error: @bin: it is neither text",
		"@long.txt":                 "error: @long.txt: it has more than 102400 bytes",
		"@huge.txt":                 "error: @huge.txt: it has more than 102400 bytes",
	} {
		blocks, err := attachments(text, identified)
		got := ""
		for _, b := range blocks {
			switch b := b.(type) {
			case *message.Text:
				got += b.Text
			case *message.Data:
				got += b.MediaType
			}
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want && !(strings.HasPrefix(want, "error") && strings.HasPrefix(got, want)) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := completeFile("@p"); len(got) != 1 || got[0].Text != "@p.png" {
		t.Errorf("%v", got)
	}
}

// identified allows each file, as it is now.
func identified(name string) (permission.File, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return permission.File{}, err
	}
	real, err := filepath.EvalSymlinks(path)
	return new(builtin.Local).Identify(real), err
}

// TestAttachedFileIsTheJudgedOne swaps a file after it was judged.
func TestAttachedFileIsTheJudgedOne(t *testing.T) {
	workspace(t)
	secret := filepath.Join(t.TempDir(), "key")
	for name, swap := range map[string]func(name string) error{
		"by a link": func(name string) error { return errors.Join(os.Remove(name), os.Symlink(secret, name)) },
		"by a file": func(name string) error { return os.Rename(secret, name) },
	} {
		for file, text := range map[string]string{"a.go": "package a\n", secret: "secret"} {
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		blocks, err := attachments("see @a.go", func(name string) (permission.File, error) {
			judged, err := identified(name)
			return judged, errors.Join(err, swap(name))
		})
		if err == nil {
			t.Errorf("%s: %d blocks are sent", name, len(blocks))
		}
	}
}
