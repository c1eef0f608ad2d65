package cluster

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Types and flags of HTTP/2 frames (RFC 9113 section 6).
const (
	frameData, frameHeaders, frameReset, frameSettings, framePush, framePing, frameGoAway, frameWindow, frameContinuation = 0, 1, 3, 4,
		5, 6, 7, 8, 9

	endHeaders = 4
)

// frame returns an HTTP/2 frame.
func frame(kind, flags byte, stream uint32, payload string) string {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}

// TestFrameFloods has an API server that sends endless HTTP/2 frames. The request ends in time and
// takes little memory.
func TestFrameFloods(t *testing.T) {
	const peakMax = 32 << 20
	lasts := 400 * time.Millisecond // some 100 MB
	if testing.Short() {
		lasts /= 4 // the race detector needs no long ones
	}
	f := func(name, first, piece string) {
		t.Helper()
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS = &tls.Config{NextProtos: []string{"h2"}}
		server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
			"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) { flood(conn, first, piece) },
		}
		server.StartTLS()
		defer server.Close()
		config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, Timeout: lasts}
		BoundAnswers(config)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		peak := heapGrowth(func() {
			response, err := client.Get(server.URL + "/api/v1/pods")
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, response.Body); err == nil {
				t.Errorf("%s: got an answer", name)
			}
			_ = response.Body.Close()
		})
		if peak > peakMax {
			t.Errorf("%s: got %d MiB, want at most %d MiB", name, peak>>20, peakMax>>20)
		}
	}
	const ok, early = "\x88", "\x08\x03103" // :status 200 and 103 (RFC 7541)
	// A literal header with a name of 1 and a value of 127 + 124*128 bytes.
	field := "\x00\x01a\x7f\x80\x7c" + strings.Repeat("b", 127+124*128)
	answer := frame(frameHeaders, endHeaders, 1, ok)
	f("SETTINGS", "", frame(frameSettings, 0, 0, ""))
	f("SETTINGS with windows", "", frame(frameSettings, 0, 0, "\x00\x04\x00\x00\x00\x01")+
		frame(frameSettings, 0, 0, "\x00\x04\x00\x00\xff\xff"))
	f("SETTINGS with table sizes", "", frame(frameSettings, 0, 0, "\x00\x01\x7f\xff\xff\xff")+
		frame(frameSettings, 0, 0, "\x00\x01\x00\x00\x00\x00"))
	f("PING", "", frame(framePing, 0, 0, "12345678"))
	f("WINDOW_UPDATE", "", frame(frameWindow, 0, 0, "\x00\x00\x00\x01"))
	f("RST_STREAM", "", frame(frameReset, 0, 1, "\x00\x00\x00\x08"))
	f("GOAWAY", "", frame(frameGoAway, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x00"))
	f("PUSH_PROMISE", "", frame(framePush, endHeaders, 1, "\x00\x00\x00\x02"+ok))
	f("HEADERS of informational answers", "", frame(frameHeaders, endHeaders, 1, early))
	f("CONTINUATION", frame(frameHeaders, 0, 1, ok), frame(frameContinuation, 0, 1, field))
	f("empty CONTINUATION", frame(frameHeaders, 0, 1, ok), frame(frameContinuation, 0, 1, ""))
	f("empty DATA", answer, frame(frameData, 0, 1, ""))
	f("DATA of a byte", answer, frame(frameData, 0, 1, "x"))
	f("DATA of padding", answer, frame(frameData, 8, 1, "\xff"+strings.Repeat("\x00", 255)))
	f("DATA of other streams", "", frame(frameData, 0, 3, "x"))
	f("unknown frames", "", frame(200, 0, 0, "x"))
}

// flood reads the preface of HTTP/2 and sends first once and then piece until the client leaves.
func flood(conn *tls.Conn, first, piece string) {
	defer conn.Close()
	settings := frame(frameSettings, 0, 0, "")
	if _, err := io.WriteString(conn, settings); err != nil {
		return
	}
	begun := make(chan struct{})
	go func() {
		buffer := make([]byte, 64<<10)
		total := 0
		for {
			n, err := conn.Read(buffer)
			if total < 60 && total+n >= 60 || err != nil && total < 60 { // the preface, SETTINGS, WINDOW_UPDATE and the request
				close(begun)
			}
			if total += n; err != nil {
				return
			}
		}
	}()
	<-begun
	time.Sleep(50 * time.Millisecond) // for the rest of the request
	pieces := []byte(strings.Repeat(piece, 1+32<<10/len(piece)))
	_, err := io.WriteString(conn, first)
	for err == nil {
		_, err = conn.Write(pieces)
	}
}

// heapGrowth returns by how much the heap grows while f runs.
func heapGrowth(f func()) int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	before, peak := stats.HeapAlloc, uint64(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return max(0, int64(peak)-int64(before))
		case <-time.After(5 * time.Millisecond):
			runtime.ReadMemStats(&stats)
			peak = max(peak, stats.HeapAlloc)
		}
	}
}
