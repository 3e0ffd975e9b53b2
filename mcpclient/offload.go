package mcpclient

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// shorten cuts the text of a result to MaxResult bytes. The whole text goes to a
// file if there is a place for it; the model is told either way.
func (c *Config) shorten(name string, chunks []tool.Chunk) ([]tool.Chunk, error) {
	total := 0
	for _, ch := range chunks {
		if t, ok := ch.Block.(*message.Text); ok {
			total += len(t.Text)
		}
	}
	if total <= c.MaxResult {
		return chunks, nil
	}
	note := fmt.Sprintf("[the result has %d bytes of text; the rest was dropped. Ask for less.]", total)
	if c.OffloadDir != "" {
		file, err := c.offload(name, chunks)
		if err != nil {
			return nil, fmt.Errorf("the result has %d bytes of text and could not be offloaded: %w", total, err)
		}
		note = fmt.Sprintf("[the result has %d bytes of text; all of it is in %s]", total, file)
	}
	left := c.MaxResult
	for i, ch := range chunks {
		delete(ch.Meta, mcpcontent.Key) // which has all of the text once more
		t, ok := ch.Block.(*message.Text)
		if !ok {
			continue
		}
		cut := *t
		if len(cut.Text) > left {
			cut.Text = clip(cut.Text, left)
		}
		left -= min(left, len(t.Text))
		chunks[i].Block = &cut
	}
	return append(chunks, tool.Text(note)), nil
}

func (c *Config) offload(name string, chunks []tool.Chunk) (path string, err error) {
	if err := os.MkdirAll(c.OffloadDir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(c.OffloadDir, filepath.Base(name)+"-*.txt")
	if err != nil {
		return "", err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	for _, ch := range chunks {
		if t, ok := ch.Block.(*message.Text); ok {
			if _, err := f.WriteString(t.Text + "\n"); err != nil {
				return "", err
			}
		}
	}
	return f.Name(), nil
}
