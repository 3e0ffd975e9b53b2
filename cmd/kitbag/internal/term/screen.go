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

// Errors of what waits for the person.
var (
	ErrLeft        = errors.New("the input has ended")                   // Ctrl-D, or Ctrl-C twice
	ErrInterrupted = errors.New("interrupted")                           // Ctrl-C at a question
	ErrForced      = errors.New("interrupted while the work was ending") // Ctrl-C twice during work
)

// Options are what a Screen is made of. The zero value works at the terminal of the program.
type Options struct {
	In, Out  *os.File                      // nil for standard input and output
	Colour   bool                          // use colours and styles
	History  *History                      // nil for one that is not stored
	Complete func(word string) []Candidate // candidates for a word that begins with / or @, sorted; nil for none
}

// A Screen is the terminal while Run works. It is safe for concurrent use, but only one question can be
// open at a time.
type Screen struct {
	program       *tea.Program
	colour        bool
	width, height atomic.Int32

	mu      sync.Mutex // for what follows, and held while lines are printed, so that they stay together
	stream  stream
	partial string // of a line that was written
}

// model is the state as bubbletea wants it.
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

// firstFrame is when the first frame has been drawn: until then bubbletea takes the whole terminal for the frame,
// and lines that are printed would be far apart.
const firstFrame = 50 * time.Millisecond

// Run shows the terminal while body works, and returns body's error. It returns ErrForced at once, while
// body still works, when the person interrupts a second time.
func Run(ctx context.Context, o Options, body func(context.Context, *Screen) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st := newState(options{colour: o.Colour, history: o.History, complete: o.Complete})
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
	cancel() // if the terminal failed, body still works
	if bodyErr := <-done; bodyErr != nil {
		return bodyErr
	}
	return err
}

// wait sends what make returns for a channel, and waits for the answer that comes over it.
func (s *Screen) wait(ctx context.Context, send func(chan<- answer) tea.Msg) (string, error) {
	s.flush()
	reply := make(chan answer, 1)
	s.program.Send(send(reply))
	select {
	case a := <-reply:
		return a.text, a.err
	case <-ctx.Done():
		s.program.Send(dropMsg{reply})
		return "", context.Cause(ctx)
	}
}

// Message returns the next message of the person, and prints it. It returns ErrLeft when there is none.
func (s *Screen) Message(ctx context.Context) (string, error) {
	text, err := s.wait(ctx, func(reply chan<- answer) tea.Msg { return readMsg{reply} })
	if err == nil {
		var lines []string
		for line := range strings.SplitSeq(plain(text), "\n") {
			lines = append(lines, wrap(line, max(s.size()-2, 8))...)
		}
		s.print(append([]string{""}, indent(lines, paint(s.colour, bold, "> "), "  ")...))
	}
	return text, err
}

// Line asks for a line of text, which is text at first, and returns it without surrounding space.
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

// Work shows that something is at work until stop is called. The context ends when the person interrupts
// it; what was typed meanwhile stays in the editor.
func (s *Screen) Work(ctx context.Context, label string) (working context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.program.Send(workMsg{label, cancel})
	return ctx, func() {
		cancel()
		s.program.Send(doneMsg{})
	}
}

// Status changes what is shown of the work: its label, unless it is empty, and its tokens.
func (s *Screen) Status(label string, tokens int) { s.program.Send(statusMsg{label, tokens}) }

// Stream adds Markdown to the text that streams in. Complete blocks are printed.
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

// EndStream prints what is left of the text that streams in.
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
	s.printLocked(append([]string{""}, Markdown(text, s.size(), s.colour)...))
}

// Print prints lines, whose only control sequences are colours. A line that is too long continues
// indented, so that it cannot look like another line.
func (s *Screen) Print(text string) {
	s.print(fold(onlyColours(strings.TrimRight(text, "\n")), s.size()))
}

// Write prints complete lines, and keeps the rest until more is written or a question comes.
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

// flush prints a line that was written without its end.
func (s *Screen) flush() {
	s.mu.Lock()
	text := s.partial
	s.partial = ""
	s.mu.Unlock()
	if text != "" {
		s.Print(text)
	}
}

// size returns the columns for a line. In the last one of the terminal the end of a line would be erased.
func (s *Screen) size() int { return max(int(s.width.Load())-1, 8) }

func (s *Screen) print(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printLocked(lines)
}

// printLocked prints lines above the frame, as many at a time as the terminal has rows for: more would
// push the frame off the screen.
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
