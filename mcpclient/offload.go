package mcpclient

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// blockCost is what a block counts besides its content, so that a result of very many
// empty ones is too large as well.
const blockCost = 32

// maxAside is how many pieces of a result are put aside and named. Of further ones the
// model learns how many there were.
const maxAside = 16

// shorten keeps MaxResult bytes of a result: of the metadata, of its blocks, in order, and
// of the structured content. Text is cut, anything else is kept whole or not at all. What
// is not kept goes to files if there is a place for them; the model is told either way.
func (c *config) shorten(name string, chunks []tool.Chunk) ([]tool.Chunk, error) {
	last := chunks[len(chunks)-1]
	total := len(last.Structured) + metaSize(last)
	for _, ch := range chunks {
		total += blockSize(ch.Block)
	}
	if total <= c.Limits.Result {
		return chunks, nil
	}
	rest := &aside{dir: c.OffloadDir, name: name}
	delete(last.Meta, mcpcontent.Key) // which has the blocks once more
	if metaSize(last) > c.Limits.Result {
		last.Meta = nil // no model reads it
	}
	kept, left := cutBlocks(chunks, c.Limits.Result-metaSize(last), rest)
	if len(last.Structured) > left {
		rest.put("the structured content", "json", last.Structured)
		last.Structured = nil
	}
	if rest.err != nil {
		return nil, fmt.Errorf("the result has %d bytes and could not be offloaded: %w", total, rest.err)
	}
	last.Block = &message.Text{Text: fmt.Sprintf("[the result has %d bytes, %d are passed on%s. Ask for less.]", total, c.Limits.Result, rest)}
	return append(kept, last), nil
}

// cutBlocks returns the blocks that fit, and how many bytes are left then.
func cutBlocks(chunks []tool.Chunk, limit int, rest *aside) (kept []tool.Chunk, left int) {
	var text bytes.Buffer // all of it
	left, cut := limit, false
	for _, ch := range chunks {
		fits := blockSize(ch.Block) <= left
		switch b := ch.Block.(type) {
		case *message.Text:
			text.WriteString(b.Text + "\n")
			if cut = cut || !fits; !fits && left > blockCost {
				b, fits = &message.Text{Text: clip(b.Text, left-blockCost)}, true
			}
			if fits {
				kept = append(kept, tool.Chunk{Block: b})
			}
			left = max(0, left-blockSize(b))
		case *message.Data:
			if !fits {
				rest.put(clip(b.MediaType, 100), extension(b.MediaType), b.Bytes)
				continue
			}
			kept = append(kept, tool.Chunk{Block: b})
			left -= blockSize(b)
		}
	}
	if cut {
		rest.put("the whole text", "txt", text.Bytes())
	}
	return kept, left
}

func blockSize(b message.Block) int {
	switch b := b.(type) {
	case *message.Text:
		return blockCost + len(b.Text)
	case *message.Data:
		return blockCost + len(b.Name) + len(b.MediaType) + len(b.Bytes)
	}
	return blockCost
}

// metaSize is the size of what the server says besides the content.
func metaSize(ch tool.Chunk) (n int) {
	for key, value := range ch.Meta {
		if key != mcpcontent.Key {
			n += len(key) + len(value)
		}
	}
	return n
}

// An aside is where the parts of a result go that are too large, and tells where they are.
type aside struct {
	dir, name string
	parts     int
	said      strings.Builder
	err       error
}

// put takes a part; the first error stays.
func (a *aside) put(what, extension string, data []byte) {
	if a.parts++; a.parts > maxAside || a.err != nil {
		return
	}
	where := "not kept"
	if a.dir != "" {
		where, a.err = a.write(extension, data)
		where = "in " + where
	}
	fmt.Fprintf(&a.said, "; %s (%d bytes) is %s", what, len(data), where)
}

// String returns what became of the parts.
func (a *aside) String() string {
	if a.parts > maxAside {
		return fmt.Sprintf("%s; %d more parts are not kept", a.said.String(), a.parts-maxAside)
	}
	return a.said.String()
}

func (a *aside) write(extension string, data []byte) (path string, err error) {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(a.dir, filepath.Base(a.name)+"-*."+extension)
	if err != nil {
		return "", err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	_, err = f.Write(data)
	return f.Name(), err
}

// extension returns the end of the name of a file with data of the type.
func extension(mediaType string) string {
	_, subtype, _ := strings.Cut(mediaType, "/")
	if subtype == "" || len(subtype) > 8 || strings.ToLower(legal(subtype)) != subtype {
		return "bin"
	}
	return subtype
}
