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
	History  *History                      // nil for one that is not stored
	Complete func(word string) []Candidate // candidates for a word that begins with / or @, sorted; nil for none
}

// A Screen is the terminal during Run. It is safe for concurrent use, but only one question can be open at a time.
type Screen struct {
	program       *tea.Program
	colour        bool
	width, height atomic.Int32

	mu      sync.Mutex // guards partial, and is held while lines are printed, so that they stay together
	stream  stream
	partial string // the incomplete last line of Write
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
	if _, ok := msg.(workMsg); ok {
		m.now = time.Now()
	}
	return m, m.update(msg)
}

func (m model) View() tea.View {
	text, cursor := m.view()
	v := tea.NewView(text)
	v.Cursor = cursor
	return v
}

// firstFrame is the time in which bubbletea draws the first frame. Until then it assumes that the frame fills the
// terminal, and would print lines far apart.
const firstFrame = 50 * time.Millisecond

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
	ready := make(chan struct{})
	var once sync.Once
	s.program = tea.NewProgram(model{st, func(w, h int) {
		s.width.Store(int32(w))
		s.height.Store(int32(h))
		once.Do(func() { time.AfterFunc(firstFrame, func() { close(ready) }) })
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

// wait sends the message that makeMsg returns, and waits for the answer on its channel.
func (s *Screen) wait(ctx context.Context, makeMsg func(chan<- answer) tea.Msg) (string, error) {
	s.flush()
	reply := make(chan answer, 1)
	s.program.Send(makeMsg(reply))
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
	text, err := s.wait(ctx, func(reply chan<- answer) tea.Msg { return readMsg{reply} })
	if err == nil {
		var lines []string
		for line := range strings.SplitSeq(plain(text), "\n") {
			lines = append(lines, wrap(line, max(s.columns()-2, minWidth))...)
		}
		s.print(append([]string{""}, indent(lines, Paint(s.colour, bold, "> "), "  ")...))
	}
	return text, err
}

// Line asks for a line, with text as its initial content, and returns it without surrounding space.
func (s *Screen) Line(ctx context.Context, label, text string) (string, error) {
	label = strings.TrimRight(onlyColours(label), " \n")
	got, err := s.wait(ctx, func(reply chan<- answer) tea.Msg { return askMsg{label: label, text: text, reply: reply} })
	if err == nil {
		s.Print(label + " " + plain(got))
	}
	return strings.TrimSpace(got), err
}

// Key asks for one of the keys, which are lower-case letters, and returns it. Other keys are ignored.
func (s *Screen) Key(ctx context.Context, label, keys string) (string, error) {
	label = onlyColours(label)
	return s.wait(ctx, func(reply chan<- answer) tea.Msg { return askMsg{label: label, keys: keys, reply: reply} })
}

// Work shows a status line until stop is called. The context ends when the user interrupts the work; text that was
// typed meanwhile stays in the editor.
func (s *Screen) Work(ctx context.Context, label string) (working context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.program.Send(workMsg{label, cancel})
	return ctx, func() {
		cancel()
		s.program.Send(doneMsg{})
	}
}

// Status changes the label, unless it is empty, and the number of tokens of the status line.
func (s *Screen) Status(label string, tokens int) { s.program.Send(statusMsg{label, tokens}) }

// Stream adds Markdown to the streamed text, and prints complete blocks.
func (s *Screen) Stream(text string) {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	done := s.stream.add(text)
	s.program.Send(tailMsg{s.stream.rest})
	if strings.TrimSpace(done) != "" {
		s.printMarkdown(done)
	}
}

// EndStream prints the rest of the streamed text.
func (s *Screen) EndStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.stream.end()
	s.program.Send(tailMsg{})
	if strings.TrimSpace(rest) != "" {
		s.printMarkdown(rest)
	}
}

// printMarkdown prints blocks, after a blank line.
func (s *Screen) printMarkdown(text string) {
	s.printLocked(append([]string{""}, Markdown(text, s.columns(), s.colour)...))
}

// Print prints lines, whose only control sequences are colours. A line that is too long continues
// indented, so that it cannot look like another line.
func (s *Screen) Print(text string) {
	s.print(fold(onlyColours(strings.TrimRight(text, "\n")), s.columns()))
}

// Write prints complete lines, and keeps the rest until the line is complete or a question is shown.
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

// flush prints an incomplete line.
func (s *Screen) flush() {
	s.mu.Lock()
	text := s.partial
	s.partial = ""
	s.mu.Unlock()
	if text != "" {
		s.Print(text)
	}
}

// columns returns the number of columns for a line, without the terminal's last one, in which text would be erased.
func (s *Screen) columns() int { return max(int(s.width.Load())-1, minWidth) }

func (s *Screen) print(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printLocked(lines)
}

// printLocked prints lines above the frame. It prints at most as many at once as fit above the frame, since more
// would push the frame off the screen.
func (s *Screen) printLocked(lines []string) {
	height := int(s.height.Load())
	rows := max(1, height-frameRows(height))
	for len(lines) > 0 {
		n := min(rows, len(lines))
		chunk := strings.Join(lines[:n], "\n")
		if chunk == "" {
			chunk = " " // an empty text is not printed
		}
		s.program.Send(tea.Println(chunk)())
		lines = lines[n:]
	}
}
