// Package testbrowser shows pages in chromium, for tests.
package testbrowser

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Start returns a function that shows a page with further flags of chromium, and returns what chromium prints. The test fails
// if the page writes to the console. Without chromium, or with -short, the test is skipped.
func Start(t *testing.T) (show func(page string, flags ...string) string) {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: on Debian, apt-get install chromium")
	}
	if testing.Short() {
		t.Skip("a browser takes seconds to start")
	}
	file := filepath.Join(t.TempDir(), "page.html")
	return func(page string, flags ...string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
			"--enable-logging=stderr", "--log-level=0", "--user-data-dir="+t.TempDir(), "file://"+file)
		cmd := exec.CommandContext(t.Context(), browser, flags...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		printed, err := cmd.Output()
		if err != nil || strings.Contains(stderr.String(), "CONSOLE") {
			t.Fatalf("%v: %s", err, &stderr)
		}
		return string(printed)
	}
}
