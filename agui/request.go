package agui

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
)

// A runInput is AG-UI's RunAgentInput. Members that the handler does not use are only checked for their type.
type runInput struct {
	ThreadID        string          `json:"threadId"`
	RunID           string          `json:"runId"`
	ProtocolVersion string          `json:"protocolVersion"`
	ParentRunID     string          `json:"parentRunId"`
	State           json.RawMessage `json:"state"`
	Messages        []wireMessage   `json:"messages"`
	Tools           []frontendTool  `json:"tools"`
	Context         []contextItem   `json:"context"`
	ForwardedProps  json.RawMessage `json:"forwardedProps"`
	Resume          []resumeEntry   `json:"resume"`
}

type contextItem struct {
	Description string `json:"description"`
	Value       string `json:"value"`
}

type resumeEntry struct {
	InterruptID string          `json:"interruptId"`
	Status      string          `json:"status"`
	Payload     json.RawMessage `json:"payload"`
}

// Limits of what a request adds to a thread, in addition to Config.MaxBody.
const (
	maxNewMessages  = 16
	maxContextItems = 32
	maxContextBytes = 32 << 10 // of all items
)

// readInput reads and checks the body of a POST.
func (h *Handler) readInput(w http.ResponseWriter, r *http.Request) (*runInput, error) {
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != "application/json" {
		return nil, refuse(http.StatusUnsupportedMediaType, "the media type %q is not application/json", contentType)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refuse(http.StatusRequestEntityTooLarge, "the request has more than %d bytes", h.cfg.MaxBody)
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "read the request: %v", err)
	}
	in, err := decodeInput(data)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "RunAgentInput: %v", err)
	}
	return in, nil
}

// decodeInput decodes a RunAgentInput, and checks what does not depend on the thread.
func decodeInput(data []byte) (*runInput, error) {
	if err := strictjson.Members(data); err != nil { // a member occurs twice
		return nil, err
	}
	var in runInput
	if err := strictjson.Unmarshal(data, &in); err != nil {
		return nil, err
	}
	if err := session.CheckID(in.RunID); err != nil {
		return nil, fmt.Errorf("runId: %w", err)
	}
	size := 0
	for _, c := range in.Context {
		size += len(c.Description) + len(c.Value)
	}
	if len(in.Context) > maxContextItems || size > maxContextBytes {
		return nil, fmt.Errorf("context has %d items with %d bytes; at most %d with %d are allowed", len(in.Context), size, maxContextItems, maxContextBytes)
	}
	if err := checkMessages(in.Messages); err != nil {
		return nil, err
	}
	return &in, checkResume(in.Resume)
}

func checkMessages(list []wireMessage) error {
	seen := map[string]bool{}
	for i, m := range list {
		switch m.Role {
		case "user", "assistant", "tool", "reasoning", "activity":
		case "system", "developer":
			return fmt.Errorf("message %d is a %s message; leave it out, since the agent has its own instructions", i, m.Role)
		default:
			return fmt.Errorf("message %d has the role %q, which is not one of AG-UI's", i, m.Role)
		}
		if m.ID == "" {
			return fmt.Errorf("message %d has no id", i)
		}
		if seen[m.ID] {
			return fmt.Errorf("two messages have the id %q", m.ID)
		}
		seen[m.ID] = true
		if m.Role == "tool" && m.ToolCallID == "" {
			return fmt.Errorf("the tool message %q has no toolCallId", m.ID)
		}
	}
	return nil
}

func checkResume(list []resumeEntry) error {
	seen := map[string]bool{}
	for _, e := range list {
		if e.Status != "resolved" && e.Status != "cancelled" {
			return fmt.Errorf("resume of %q has the status %q; it must be resolved or cancelled", e.InterruptID, e.Status)
		}
		if seen[e.InterruptID] {
			return fmt.Errorf("resume answers %q twice", e.InterruptID)
		}
		seen[e.InterruptID] = true
	}
	return nil
}

// mediaPrefix maps the type of a part to the prefix that the part's media type must have.
var mediaPrefix = map[string]string{"image": "image/", "audio": "audio/", "video": "video/", "document": ""}

// blocks returns the content of a message of the user or of a tool.
func (m *wireMessage) blocks() (message.Blocks, error) {
	if bytes.HasPrefix(m.Content, []byte(`"`)) {
		var text string
		if err := json.Unmarshal(m.Content, &text); err != nil {
			return nil, err
		}
		return message.Blocks{&message.Text{Text: text}}, nil
	}
	var parts []wirePart
	if err := json.Unmarshal(m.Content, &parts); err != nil || len(parts) == 0 {
		return nil, errors.New("its content must be a string or a list of parts")
	}
	var list message.Blocks
	for i, p := range parts {
		if p.Type == "text" {
			list = append(list, &message.Text{Text: p.Text})
			continue
		}
		prefix, ok := mediaPrefix[p.Type]
		switch {
		case !ok || p.Source == nil:
			return nil, fmt.Errorf("part %d has the type %q; it must be text, or an image, audio, video or document with a source", i, p.Type)
		case p.Source.Type != "data": // a URL, which the server must not fetch for a client
			return nil, fmt.Errorf("part %d has a source of type %q; send the data itself", i, p.Source.Type)
		}
		data, dataErr := base64.StdEncoding.DecodeString(p.Source.Value)
		mediaType, _, typeErr := mime.ParseMediaType(p.Source.MimeType)
		if dataErr != nil || typeErr != nil || !strings.HasPrefix(mediaType, prefix) {
			return nil, fmt.Errorf("part %d must have base64 data and the media type of %s", i, p.Type)
		}
		list = append(list, &message.Data{MediaType: mediaType, Bytes: data})
	}
	return list, nil
}

// text returns the content of a message if it is a text; isText is true also without content, which a message with
// tool calls may lack.
func (m *wireMessage) text() (text string, isText bool) {
	if len(m.Content) == 0 || bytes.Equal(m.Content, []byte("null")) {
		return "", true
	}
	list, err := m.blocks()
	if err != nil || len(list) != 1 {
		return "", false
	}
	_, isText = list[0].(*message.Text)
	return list.Text(), isText
}
