package bench

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// TestReadProcess reads the values of this process and checks that its CPU time grows and that it
// has memory.
func TestReadProcess(t *testing.T) {
	before, resident, err := readProcess(os.Getpid())
	if err != nil || before <= 0 || resident < 1<<20 || resident > 1<<36 {
		t.Fatalf("got %s, %g bytes and %v", before, resident, err)
	}
	memory := make([]byte, 64<<20)
	for started := time.Now(); time.Since(started) < 3*time.Millisecond; {
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i]++
		}
	}
	after, more, err := readProcess(os.Getpid())
	runtime.KeepAlive(memory)
	if err != nil || after-before < time.Millisecond || after-before > time.Minute || more-resident < 32<<20 {
		t.Errorf("got %s and %g bytes more after computing for 3ms with 64 MiB, error %v", after-before, more-resident, err)
	}
	if _, _, err := readProcess(1 << 30); err == nil {
		t.Error("a process that cannot be is no error")
	}
}

func TestParseStatm(t *testing.T) {
	if resident, err := parseStatm([]byte("318345 5000 2345 1 0 60 0\n")); err != nil || resident != float64(5000*os.Getpagesize()) {
		t.Errorf("got %g bytes and %v", resident, err)
	}
	f := func(statm string) {
		t.Helper()
		if _, err := parseStatm([]byte(statm)); err == nil {
			t.Errorf("%q is no error", statm)
		}
	}
	f("")
	f("318345")
	f("318345 x 1")
}
