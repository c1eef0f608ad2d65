package admission

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
)

// Stacks returns the stacks of goroutines that run a plugin, and whose stack contains a text, up to so many bytes. It stops the
// process for a moment.
func Stacks(containing string, bytesMax int) string {
	buffer := make([]byte, 1<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	var found strings.Builder
	for stack := range bytes.SplitSeq(buffer, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("admission.(*round).call(")) && bytes.Contains(stack, []byte(containing)) &&
			found.Len()+len(stack) <= bytesMax {
			fmt.Fprintf(&found, "%s\n\n", stack)
		}
	}
	return found.String()
}
