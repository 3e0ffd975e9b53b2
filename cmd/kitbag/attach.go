package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // decoders of the pictures that can be sent
	_ "image/jpeg"
	_ "image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/term"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// The sizes of the largest files that a message can name, in bytes.
const (
	maxAttachedText    = 100 << 10
	maxAttachedPicture = 5 << 20
)

// attachments returns the content of the files that a message names as @FILE, if may returns no error for each. A
// word after @ that is not a file is only a word.
func attachments(text string, may func(name string) error) (blocks []message.Block, err error) {
	var seen []string
	for word := range strings.FieldsSeq(text) {
		name, ok := strings.CutPrefix(word, "@")
		if !ok || name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil { // with punctuation after it, as at the end of a sentence
			name = strings.TrimRight(name, ".,;:!?)")
			info, err = os.Stat(name)
		}
		if err != nil || !info.Mode().IsRegular() || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		var b message.Block
		if err = may(name); err == nil {
			b, err = attach(name)
		}
		if err != nil {
			return nil, fmt.Errorf("@%s: %w; the message is not sent", plainLine(name), err)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// mayAttach returns an error unless the tool Read may show the file to the model, or the user agrees: the message
// may have been pasted from anywhere.
func (c *chat) mayAttach(ctx context.Context, name string) error {
	path, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	input, err := json.Marshal(map[string]string{"file_path": path})
	if err != nil {
		return err
	}
	policy := c.kit.policy
	policy.Rules = slices.Concat(policy.Rules, c.conv.Rules)
	d := permission.Decide(&policy, newCalls().call("Read", input, policy.Dirs[0]))
	switch {
	case d.Behavior == permission.Allow:
		return nil
	case d.Behavior != permission.Ask || c.prompt == nil:
		return errors.New(d.Reason)
	}
	c.prompt.discardTyped()
	ok, err := c.prompt.yesNo(ctx, fmt.Sprintf("  @%s: %s. Send it to the model? [y]es / [n]o: ", plainLine(name), plainLine(d.Reason)))
	if err == nil && !ok {
		err = errors.New("you refused to send it")
	}
	return err
}

// checkLink returns an error if the name leads to another file than it says: a repository may have a link
// to a key in the user's home.
func checkLink(name string) error {
	want, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	if filepath.IsLocal(name) { // the current directory itself may be reached by a link
		cwd, err := filepath.EvalSymlinks(strings.TrimSuffix(want, filepath.Clean(name)))
		if err != nil {
			return err
		}
		want = filepath.Join(cwd, name)
	}
	real, err := filepath.EvalSymlinks(want)
	if err == nil && real != want {
		return fmt.Errorf("it is a link to %s; name that file if you mean it", plainLine(real))
	}
	return err
}

// attach reads one file.
func attach(name string) (message.Block, error) {
	if err := checkLink(name); err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxAttachedPicture+1))
	if err != nil {
		return nil, err
	}
	if kind := http.DetectContentType(data); strings.HasPrefix(kind, "image/") {
		if len(data) > maxAttachedPicture {
			return nil, fmt.Errorf("the picture has more than %d bytes; make it smaller", maxAttachedPicture)
		}
		if _, _, err := image.DecodeConfig(bytes.NewReader(data)); err != nil { // a damaged one would end the conversation
			return nil, fmt.Errorf("it is not a picture that can be sent: %w; use PNG, JPEG or GIF", err)
		}
		return &message.Data{Name: filepath.Base(name), MediaType: kind, Bytes: data}, nil
	}
	switch {
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return nil, errors.New("it is neither text in UTF-8 nor a picture; let the agent read it with a tool")
	case len(data) > maxAttachedText:
		return nil, fmt.Errorf("it has %d bytes, more than the %d that can be added; name it without @, and the agent reads what it needs", len(data), maxAttachedText)
	}
	return &message.Text{Text: fmt.Sprintf("The content of %s:\n\n%s", name, data)}, nil
}

// completeFile returns the files that a word such as @src/ma may become.
func completeFile(word string) (out []term.Candidate) {
	path := strings.TrimPrefix(word, "@")
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Join(".", dir))
	if filepath.IsAbs(dir) {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" || strings.ContainsAny(name, " \t\n") || plain(name) != name {
			continue
		}
		if e.IsDir() {
			name += "/"
		}
		out = append(out, term.Candidate{Text: "@" + dir + name})
	}
	return out
}
