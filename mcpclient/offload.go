package mcpclient

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// blockCost is how many bytes an empty block counts, so that very many empty blocks also exceed the limit.
const blockCost = 32

// maxOverflowParts is how many parts of a result are written to files and named in the notice. More are only counted.
const maxOverflowParts = 16

// shorten cuts a result to Limits.Result bytes. It keeps metadata first, then blocks in order, then structured
// content, as long as they fit. Text is cut; anything else is kept whole or dropped. The rest is written to files in
// OffloadDir if that is set, and a notice for the model names them.
func (c *config) shorten(name string, chunks []tool.Chunk) ([]tool.Chunk, error) {
	last := chunks[len(chunks)-1] // has the structured content and the metadata
	total := len(last.Structured) + metaSize(last)
	for _, ch := range chunks {
		total += blockSize(ch.Block)
	}
	if total <= c.Limits.Result {
		return chunks, nil
	}
	rest := &overflow{dir: c.OffloadDir, name: name}
	delete(last.Meta, mcpcontent.Key) // this member repeats blocks
	if metaSize(last) > c.Limits.Result {
		last.Meta = nil // models do not read metadata
	}
	kept, left := cutBlocks(chunks, c.Limits.Result-metaSize(last), rest)
	if len(last.Structured) > left {
		rest.add("the structured content", "json", last.Structured)
		last.Structured = nil
	}
	if rest.err != nil {
		return nil, fmt.Errorf("the result has %d bytes and could not be offloaded: %w", total, rest.err)
	}
	last.Block = &message.Text{Text: fmt.Sprintf("[the result has %d bytes, %d of which are passed on%s. Request less.]", total, c.Limits.Result, rest)}
	return append(kept, last), nil
}

// cutBlocks returns the blocks that fit and how many bytes are left. Nothing fits after a text that was cut.
func cutBlocks(chunks []tool.Chunk, limit int, rest *overflow) (kept []tool.Chunk, left int) {
	var text bytes.Buffer // the whole text
	left, textCut := limit, false
	for _, ch := range chunks {
		size := blockSize(ch.Block)
		switch b := ch.Block.(type) {
		case *message.Text:
			text.WriteString(b.Text + "\n")
			if size > left {
				if left > blockCost {
					kept = append(kept, tool.Chunk{Block: &message.Text{Text: clip(b.Text, left-blockCost)}})
				}
				left, textCut = 0, true
				continue
			}
		case *message.Data:
			if size > left {
				rest.add(clip(b.MediaType, 100), extension(b.MediaType), b.Bytes)
				continue
			}
		}
		kept = append(kept, tool.Chunk{Block: ch.Block})
		left -= size
	}
	if textCut {
		rest.add("the whole text", "txt", text.Bytes())
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

// metaSize is the size of the server's metadata, without mcpcontent.Key, which the client sets.
func metaSize(ch tool.Chunk) (n int) {
	for key, value := range ch.Meta {
		if key != mcpcontent.Key {
			n += len(key) + len(value)
		}
	}
	return n
}

// An overflow writes the parts of a result that do not fit to files, and makes the notice about them.
type overflow struct {
	dir    string // Options.OffloadDir; "" drops the parts
	name   string // of the tool; begins the names of the files
	parts  int
	notice strings.Builder
	err    error // the first one
}

// add adds a part, unless there are too many parts or another part could not be written.
func (o *overflow) add(what, extension string, data []byte) {
	if o.parts++; o.parts > maxOverflowParts || o.err != nil {
		return
	}
	where := "dropped"
	if o.dir != "" {
		where, o.err = o.write(extension, data)
		where = "in " + where
	}
	fmt.Fprintf(&o.notice, "; %s (%d bytes) is %s", what, len(data), where)
}

// String returns the notice as clauses, each after a semicolon.
func (o *overflow) String() string {
	if o.parts > maxOverflowParts {
		return fmt.Sprintf("%s; %d more parts are dropped", o.notice.String(), o.parts-maxOverflowParts)
	}
	return o.notice.String()
}

func (o *overflow) write(extension string, data []byte) (path string, err error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(o.dir, filepath.Base(o.name)+"-*."+extension)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return f.Name(), errors.Join(err, f.Close())
}

// extension returns the file name extension for a media type: a short subtype that needs no escapes, or else bin.
func extension(mediaType string) string {
	_, subtype, _ := strings.Cut(mediaType, "/")
	if subtype == "" || len(subtype) > 8 || strings.ToLower(legalName(subtype)) != subtype {
		return "bin"
	}
	return subtype
}
