package builtin

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/kitbag-go/kitbag/message"
)

// A notebook is the part of a Jupyter notebook, format 4, that Read shows:
// https://nbformat.readthedocs.io/en/latest/format_description.html
type notebook struct {
	Cells []struct {
		ID      string    `json:"id"`
		Type    string    `json:"cell_type"`
		Source  multiline `json:"source"`
		Outputs []output  `json:"outputs"`
	} `json:"cells"`
}

type output struct {
	Type      string                     `json:"output_type"`
	Text      multiline                  `json:"text"`
	Data      map[string]json.RawMessage `json:"data"`
	Ename     string                     `json:"ename"`
	Evalue    string                     `json:"evalue"`
	Traceback []string                   `json:"traceback"`
}

// multiline is a text that may be encoded as a list of lines.
type multiline string

func (m *multiline) UnmarshalJSON(raw []byte) error {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		*m = multiline(strings.Join(list, ""))
		return nil
	}
	return json.Unmarshal(raw, (*string)(m))
}

// readNotebook returns the cells with their outputs. Pictures that the model can see are separate blocks.
func (c *Config) readNotebook(r io.Reader, info fs.FileInfo, name string) ([]message.Block, error) {
	raw, err := readAll(r, info, name, maxDocument)
	if err != nil {
		return nil, err
	}
	var nb notebook
	if err := json.Unmarshal(raw, &nb); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // its own text would name a Go type
			err = fmt.Errorf("%q is a JSON %s", wrong.Field, wrong.Value)
		}
		return nil, fmt.Errorf("%s is not a notebook of format 4: %w; look at it with Bash", name, err)
	}
	var blocks []message.Block
	var b strings.Builder
	textInBlocks := 0 // bytes
	for i, cell := range nb.Cells {
		id := cell.ID
		if id == "" {
			id = fmt.Sprintf("cell-%d", i)
		}
		source, cut := firstChars(string(cell.Source), maxReadText)
		if cut {
			source += "[truncated]"
		}
		fmt.Fprintf(&b, "<cell id=%q type=%q>\n%s\n</cell>\n", id, cell.Type, source)
		for _, out := range cell.Outputs {
			text, pictures := out.show(c.returnsImage)
			if text != "" {
				// An output gets less than a source, since the head of a log or table is enough.
				short, cut := firstChars(text, 10_000)
				if cut {
					short += "[truncated]"
				}
				fmt.Fprintf(&b, "<output>\n%s\n</output>\n", strings.TrimRight(short, "\n"))
			}
			if len(pictures) > 0 {
				textInBlocks += b.Len()
				blocks = append(append(blocks, &message.Text{Text: b.String()}), pictures...)
				b.Reset()
			}
		}
		if more := len(nb.Cells) - i - 1; more > 0 && textInBlocks+b.Len() > maxReadText {
			fmt.Fprintf(&b, "[%s more; see them with Bash]\n", plural(more, "cell"))
			break
		}
	}
	if b.Len() > 0 || len(blocks) == 0 {
		blocks = append(blocks, &message.Text{Text: b.String()})
	}
	return blocks, nil
}

// show returns an output for the model: the best picture that the model can see, or text.
func (o *output) show(sees func(mediaType string) bool) (text string, pictures []message.Block) {
	switch {
	case o.Type == "error":
		return fmt.Sprintf("%s: %s\n%s", o.Ename, o.Evalue, strings.Join(o.Traceback, "\n")), nil
	case o.Text != "":
		return string(o.Text), nil
	}
	for _, mediaType := range []string{"image/png", "image/jpeg"} {
		var b64 multiline
		if !sees(mediaType) || json.Unmarshal(o.Data[mediaType], &b64) != nil {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(b64), "\n", ""))
		if err == nil && len(data) <= maxImage {
			return "", []message.Block{&message.Data{MediaType: mediaType, Bytes: data}}
		}
	}
	var plain multiline
	if json.Unmarshal(o.Data["text/plain"], &plain) != nil {
		return "", nil
	}
	return string(plain), nil
}
