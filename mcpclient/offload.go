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

// blockCost is the size of an empty block, so that very many empty blocks are also too large.
const blockCost = 32

// maxOverflow is how many parts of a result are named in the notice; the others are counted.
const maxOverflow = 16

// shorten cuts a result to Limits.Result bytes. It keeps metadata first, then blocks in order, then structured
// content, as long as they fit. Text is cut; anything else is kept whole or dropped. The rest is written to files in
// OffloadDir if that is set, and a notice for the model names them.
func (c *config) shorten(name string, chunks []tool.Chunk) ([]tool.Chunk, error) {
	last := chunks[len(chunks)-1] // it has the structured content and the metadata
	total := len(last.Structured) + metaSize(last)
	for _, ch := range chunks {
		total += blockSize(ch.Block)
	}
	if total <= c.Limits.Result {
		return chunks, nil
	}
	rest := &overflow{dir: c.OffloadDir, name: name}
	delete(last.Meta, mcpcontent.Key) // it repeats the blocks
	if metaSize(last) > c.Limits.Result {
		last.Meta = nil // models do not read it
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

// cutBlocks returns the blocks that fit and how many bytes are left.
func cutBlocks(chunks []tool.Chunk, limit int, rest *overflow) (kept []tool.Chunk, left int) {
	var text bytes.Buffer // the whole text
	left, textCut := limit, false
	for _, ch := range chunks {
		fits := blockSize(ch.Block) <= left
		switch b := ch.Block.(type) {
		case *message.Text:
			text.WriteString(b.Text + "\n")
			textCut = textCut || !fits
			if !fits && left > blockCost {
				b, fits = &message.Text{Text: clip(b.Text, left-blockCost)}, true
			}
			if fits {
				kept = append(kept, tool.Chunk{Block: b})
			}
			left = max(0, left-blockSize(b))
		case *message.Data:
			if !fits {
				rest.add(clip(b.MediaType, 100), extension(b.MediaType), b.Bytes)
				continue
			}
			kept = append(kept, tool.Chunk{Block: b})
			left -= blockSize(b)
		}
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

// metaSize is the size of the server's metadata.
func metaSize(ch tool.Chunk) (n int) {
	for key, value := range ch.Meta {
		if key != mcpcontent.Key {
			n += len(key) + len(value)
		}
	}
	return n
}

// An overflow collects the parts of a result that are too large, and the notice about them.
type overflow struct {
	dir, name string
	parts     int
	notice    strings.Builder
	err       error
}

// add adds a part; the first error is kept.
func (o *overflow) add(what, extension string, data []byte) {
	if o.parts++; o.parts > maxOverflow || o.err != nil {
		return
	}
	where := "dropped"
	if o.dir != "" {
		where, o.err = o.write(extension, data)
		where = "in " + where
	}
	fmt.Fprintf(&o.notice, "; %s (%d bytes) is %s", what, len(data), where)
}

// String returns the notice.
func (o *overflow) String() string {
	if o.parts > maxOverflow {
		return fmt.Sprintf("%s; %d more parts are dropped", o.notice.String(), o.parts-maxOverflow)
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

// extension returns the file name extension for a media type.
func extension(mediaType string) string {
	_, subtype, _ := strings.Cut(mediaType, "/")
	if subtype == "" || len(subtype) > 8 || strings.ToLower(legalName(subtype)) != subtype {
		return "bin"
	}
	return subtype
}
