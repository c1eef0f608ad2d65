package app

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fastadmit/fastadmit/bench"
)

// benchProgress shows on a terminal how far the load is, in one line that it
// writes over. It shows nothing where there is no terminal.
type benchProgress struct {
	terminal io.Writer // nil if there is none
}

func newBenchProgress(w io.Writer) *benchProgress { return &benchProgress{terminalOf(w)} }

// terminalOf returns w if it is a terminal, and nil if not.
func terminalOf(w io.Writer) io.Writer {
	file, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if about, err := file.Stat(); err != nil || about.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return file
}

const clearLine = "\r\x1b[K"

func (b *benchProgress) progress(p bench.Progress) {
	if b.terminal == nil {
		return
	}
	what := "measuring"
	if p.WarmUp {
		what = "warming up"
	}
	fmt.Fprintf(b.terminal, clearLine+"%s %s, %s: %.0f requests/s, p99 %s, %d sent, %d failed",
		p.Target, what, p.Elapsed.Round(time.Second), p.Rate, p.P99.Round(time.Microsecond), p.Requests, p.Failed)
}

func (b *benchProgress) clear() {
	if b.terminal != nil {
		fmt.Fprint(b.terminal, clearLine)
	}
}
