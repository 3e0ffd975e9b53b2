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

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/term"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// The sizes of the largest files that a message can name, in bytes.
const (
	maxAttachedText    = 100 << 10
	maxAttachedPicture = 5 << 20
)

// attachments returns the content of the files that a message names as @FILE. judge decides whether a file may be sent.
// A word after @ that does not name a file is left as text.
func attachments(text string, judge func(name string) (permission.File, error)) (blocks []message.Block, err error) {
	var seen []string
	for word := range strings.FieldsSeq(text) {
		name, ok := strings.CutPrefix(word, "@")
		if !ok || name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil { // retry without punctuation after the name
			name = strings.TrimRight(name, ".,;:!?)")
			info, err = os.Stat(name)
		}
		if err != nil || !info.Mode().IsRegular() || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		var b message.Block
		file, err := judge(name)
		if err == nil {
			b, err = attach(name, file)
		}
		if err != nil {
			return nil, fmt.Errorf("@%s: %w; the message is not sent", plainLine(name), err)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// judgeAttachment judges a file as if the model called the tool Read, and asks the user if that call needs approval: the
// message may have been pasted from anywhere. It returns the file with its real path, or why the file may not be sent.
func (c *chat) judgeAttachment(ctx context.Context, name string) (permission.File, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return permission.File{}, err
	}
	input, err := json.Marshal(map[string]string{"file_path": path})
	if err != nil {
		return permission.File{}, err
	}
	policy := c.kit.policy
	policy.Rules = slices.Concat(policy.Rules, c.conv.Rules)
	d := permission.Decide(&policy, new(builtins).describe("Read", input, policy.Dirs[0]))
	files := d.Judgement.Files
	switch { // a valid call of Read uses exactly one file
	case d.Behavior == permission.Allow && len(files) == 1:
		return files[0], nil
	case d.Behavior != permission.Ask || len(files) != 1:
		return permission.File{}, errors.New(d.Reason)
	}
	c.prompt.discardTyped()
	ok, err := c.prompt.askYesNo(ctx, fmt.Sprintf("  @%s: %s. Send it to the model? [y]es / [n]o: ", plainLine(name), plainLine(d.Reason)))
	if err == nil && !ok {
		err = errors.New("you refused to send it")
	}
	return files[0], err
}

// checkLink returns an error if name leads to target through a link: a repository may contain a link to a key in the
// user's home. Links in the path of the current directory are no error.
func checkLink(name, target string) error {
	path, err := filepath.Abs(name)
	if filepath.IsLocal(name) {
		var cwd string
		cwd, err = realCurrentDir()
		path = filepath.Join(cwd, name)
	}
	if err == nil && path != target {
		err = fmt.Errorf("it is a link to %s; name that file if you mean it", plainLine(target))
	}
	return err
}

// attach returns the content of a judged file; name is the path in the message.
func attach(name string, judged permission.File) (message.Block, error) {
	if err := checkLink(name, judged.Path); err != nil {
		return nil, err
	}
	f, err := new(builtin.Local).Open(context.Background(), judged) // fails if the file was replaced since
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
		// A damaged picture in the conversation would make the provider reject every further request.
		if _, _, err := image.DecodeConfig(bytes.NewReader(data)); err != nil {
			return nil, fmt.Errorf("it is not a picture that can be sent: %w; use PNG, JPEG or GIF", err)
		}
		return &message.Data{Name: filepath.Base(name), MediaType: kind, Bytes: data}, nil
	}
	switch {
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return nil, errors.New("it is neither text in UTF-8 nor a picture; let the agent read it with a tool")
	case len(data) > maxAttachedText:
		return nil, fmt.Errorf("it has more than %d bytes; name it without @, and the agent reads what it needs", maxAttachedText)
	}
	return &message.Text{Text: fmt.Sprintf("The content of %s:\n\n%s", name, data)}, nil
}

// completeFile returns the possible completions of a word such as @src/ma. It leaves out hidden files until the dot is
// typed, and names that would not be one word or not be shown as they are.
func completeFile(word string) (out []term.Candidate) {
	path := strings.TrimPrefix(word, "@")
	dir, base := filepath.Split(path)
	entries, _ := os.ReadDir(filepath.Clean(dir)) // without an existing directory there are no candidates
	for _, e := range entries {
		name := e.Name()
		hidden := base == "" && strings.HasPrefix(name, ".")
		if hidden || !strings.HasPrefix(name, base) || strings.ContainsAny(name, " \t\n") || plain(name) != name {
			continue
		}
		if e.IsDir() {
			name += "/"
		}
		out = append(out, term.Candidate{Text: "@" + dir + name})
	}
	return out
}
