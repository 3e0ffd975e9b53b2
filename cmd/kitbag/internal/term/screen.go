package term

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Errors of methods that wait for the user.
var (
	ErrLeft        = errors.New("the input has ended")                     // Ctrl-D, or Ctrl-C twice
	ErrInterrupted = errors.New("interrupted")                             // Ctrl-C at a question
	ErrForced      = errors.New("interrupted while the work was stopping") // Ctrl-C twice during work
)

// Options configure a Screen. The zero value uses the terminal of the program.
type Options struct {
	In, Out  *os.File                      // nil for standard input and output
	Colour   bool                          // use colours and styles
	History  *History                      // nil for an empty history that is not stored
	Complete func(word string) []Candidate // returns candidates for a word that begins with / or @, sorted; nil to complete nothing
}

// A Screen is the terminal during Run. It is safe for concurrent use, but only one question can be open at a time.
type Screen struct {
	program       *tea.Program
	colour        bool
	width, height atomic.Int32

	mu      sync.Mutex // guards the fields below, and is held while lines are printed, so that they stay together
	stream  stream
	partial string // what Write has after the last line break
}

// model adapts the state to bubbletea's interface.
type model struct {
	*state
	resized func(width, height int)
}

func (m model) Init() tea.Cmd { return nil }

func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if size, ok := msg.(tea.WindowSizeMsg); ok {
		m.resized(size.Width, size.Height)
	}
	return m, m.update(msg)
}

func (m model) View() tea.View {
	text, cursor := m.view()
	v := tea.NewView(text)
	v.Cursor = cursor
	return v
}

// firstFrameTime is enough for bubbletea to draw the first frame. Until then bubbletea takes the frame to be as high as
// the terminal, and would leave empty rows between printed lines.
const firstFrameTime = 50 * time.Millisecond

// Run shows the terminal while body works, and returns body's error. It returns ErrForced at once, while body still
// works, when the user interrupts a second time.
func Run(ctx context.Context, o Options, body func(context.Context, *Screen) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st := newState(o)
	s := &Screen{colour: o.Colour}
	opts := []tea.ProgramOption{tea.WithoutSignalHandler()}
	if o.In != nil {
		opts = append(opts, tea.WithInput(o.In))
	}
	if o.Out != nil {
		opts = append(opts, tea.WithOutput(o.Out))
	}
	ready := make(chan struct{}) // closed when the first frame is drawn
	var firstSize sync.Once
	s.program = tea.NewProgram(model{st, func(w, h int) {
		s.width.Store(int32(w))
		s.height.Store(int32(h))
		firstSize.Do(func() { time.AfterFunc(firstFrameTime, func() { close(ready) }) })
	}}, opts...)
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				s.program.Kill() // restores the terminal before the panic is shown
				panic(r)
			}
		}()
		select {
		case <-ready:
		case <-ctx.Done():
		}
		err := body(ctx, s)
		s.flush()
		done <- err
		s.program.Quit()
	}()
	_, err := s.program.Run()
	if st.work != nil && st.work.forced {
		return ErrForced
	}
	cancel() // if the terminal failed, body is still running
	if bodyErr := <-done; bodyErr != nil {
		return bodyErr
	}
	return err
}

// request sends a message to the state, and waits for the answer. newMsg returns the message for a channel.
func (s *Screen) request(ctx context.Context, newMsg func(reply chan<- answer) tea.Msg) (string, error) {
	s.flush()
	reply := make(chan answer, 1)
	s.program.Send(newMsg(reply))
	select {
	case a := <-reply:
		return a.text, a.err
	case <-ctx.Done():
		s.program.Send(dropMsg{reply})
		return "", context.Cause(ctx)
	}
}

// Message returns the user's next message, and prints it. It returns ErrLeft when the input has ended.
func (s *Screen) Message(ctx context.Context) (string, error) {
	text, err := s.request(ctx, func(reply chan<- answer) tea.Msg { return readMsg{reply} })
	if err == nil {
		var lines []string
		for line := range strings.SplitSeq(plain(text), "\n") {
			lines = append(lines, wrap(line, max(s.columns()-2, minWidth))...) // 2 for the prompt
		}
		s.print(append([]string{""}, indent(lines, Paint(s.colour, bold, "> "), "  ")...))
	}
	return text, err
}

// Line shows a label and an editor that contains text, and returns the edited line without surrounding space.
func (s *Screen) Line(ctx context.Context, label, text string) (string, error) {
	label = strings.TrimRight(onlyColours(label), " \n")
	got, err := s.request(ctx, func(reply chan<- answer) tea.Msg { return askMsg{label: label, text: text, reply: reply} })
	if err == nil {
		s.Print(label + " " + plain(got))
	}
	return strings.TrimSpace(got), err
}

// Key shows a label, and returns the pressed key: one of keys, which are lower-case letters. It ignores other keys.
func (s *Screen) Key(ctx context.Context, label, keys string) (string, error) {
	label = onlyColours(label)
	return s.request(ctx, func(reply chan<- answer) tea.Msg { return askMsg{label: label, keys: keys, reply: reply} })
}

// Work shows a status line until stop is called. An interrupt ends the context working, and leaves text in the editor.
func (s *Screen) Work(ctx context.Context, label string) (working context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.program.Send(workMsg{label, time.Now(), cancel})
	return ctx, func() {
		cancel()
		s.program.Send(doneMsg{})
	}
}

// Status changes the label and the number of tokens in the status line. An empty label leaves the old label.
func (s *Screen) Status(label string, tokens int) { s.program.Send(statusMsg{label, tokens}) }

// Stream adds Markdown to the streamed text, and prints the blocks that are now complete.
func (s *Screen) Stream(text string) {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	blocks := s.stream.add(text)
	s.program.Send(tailMsg{s.stream.rest})
	s.printMarkdownLocked(blocks)
}

// EndStream prints the rest of the streamed text.
func (s *Screen) EndStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.stream.end()
	s.program.Send(tailMsg{})
	s.printMarkdownLocked(rest)
}

// printMarkdownLocked prints a blank line and the text, unless the text is blank. The caller must hold s.mu.
func (s *Screen) printMarkdownLocked(text string) {
	if strings.TrimSpace(text) != "" {
		s.printLocked(append([]string{""}, Markdown(text, s.columns(), s.colour)...))
	}
}

// Print prints the lines of text, and removes all control sequences except colours. A line that is too long continues
// indented, so that its rest cannot look like another line.
func (s *Screen) Print(text string) {
	s.print(fold(onlyColours(strings.TrimRight(text, "\n")), s.columns()))
}

// Write prints complete lines. It keeps an incomplete line until a later Write completes it, or flush prints it.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	text := s.partial + string(p)
	i := strings.LastIndexByte(text, '\n')
	s.partial = text[i+1:]
	s.mu.Unlock()
	if i >= 0 {
		s.Print(text[:i])
	}
	return len(p), nil
}

// flush prints the incomplete line that Write has kept, since other output or a question follows.
func (s *Screen) flush() {
	s.mu.Lock()
	text := s.partial
	s.partial = ""
	s.mu.Unlock()
	if text != "" {
		s.Print(text)
	}
}

// columns returns the maximum width of a printed line. bubbletea would erase text in the terminal's last column.
func (s *Screen) columns() int { return max(int(s.width.Load())-1, minWidth) }

func (s *Screen) print(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printLocked(lines)
}

// printLocked prints lines above the frame, in chunks that fit there: a longer chunk would push the frame off the
// screen. The caller must hold s.mu.
func (s *Screen) printLocked(lines []string) {
	height := int(s.height.Load())
	rows := max(1, height-maxFrameRows(height))
	for len(lines) > 0 {
		n := min(rows, len(lines))
		chunk := strings.Join(lines[:n], "\n")
		if chunk == "" {
			chunk = " " // bubbletea does not print an empty text
		}
		s.program.Send(tea.Println(chunk)())
		lines = lines[n:]
	}
}
