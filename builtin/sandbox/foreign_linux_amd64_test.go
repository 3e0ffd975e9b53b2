package sandbox_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

func init() { foreign = foreignCall }

// foreignCall makes a system call as 32-bit programs do; the numbers of the calls have other meanings.
func foreignCall() {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	copy(mem, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3}) // mov eax, 20; int 0x80; ret
	code := uintptr(unsafe.Pointer(&mem[0]))
	f := &code
	(*(*func())(unsafe.Pointer(&f)))()
}

func TestForeignCall(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newWorld(t).spec(permission.ProfileWork)
	cmd := exec.Command(self, "foreign", "")
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Run()
	r, err := cleanup()
	// A kernel without such calls sends SIGSEGV, which Go turns into an exit code.
	if err != nil || r.Signal != syscall.SIGSYS && cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("%+v, %v, %v", r, err, cmd.ProcessState)
	}
}
