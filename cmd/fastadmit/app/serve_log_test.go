package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/codec"
)

// TestMain redirects klog before the first test: a watch of an earlier test may still log when another one starts the server.
func TestMain(m *testing.M) {
	redirectKlog()
	os.Exit(m.Run())
}

// TestLogLibraries has libraries log texts of a backend, more often than the log's limiter allows.
func TestLogLibraries(t *testing.T) {
	const hostile = "a\nb\x1b[2J\u009b\u202e\u200b"
	var b bytes.Buffer
	end := logLibraries(&b)
	defer end()
	begun := time.Now()
	klog.Errorf("%s%s", hostile, strings.Repeat("x", 1<<20))
	for range 1000 {
		klog.ErrorS(errors.New(hostile), hostile, hostile, hostile)
		log.Print(hostile)
	}
	end()
	most := 150 + 20*int(time.Since(begun).Seconds()) // the limiter takes 100 at once, and 20 a second
	log.SetOutput(t.Output())
	log.Print("not there")
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) < 10 || len(lines) > most {
		t.Errorf("got %d lines, want as many as the limiter allows, at most %d", len(lines), most)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) || len(line) > 16<<10 ||
			strings.ContainsFunc(line, func(r rune) bool { return !codec.IsPrintable(r) }) ||
			strings.Contains(line, "not there") {
			t.Errorf("got a line of %d bytes: %.300q", len(line), line)
		}
	}
}
