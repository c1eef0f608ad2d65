package server

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestHandshakesTakeTurns has more handshakes than may compute at a time, which here takes
// as long as the test wants. No more than these compute. A call on an open connection is
// answered meanwhile. A connection that is evicted ends without a turn, and one that sends
// nothing more gets none.
func TestHandshakesTakeTurns(t *testing.T) {
	var certificate Certificate
	if err := certificate.Load(); err != nil {
		t.Fatal(err)
	}
	var stays atomic.Bool
	var hellos, within atomic.Int64
	goOn := make(chan struct{})
	p := servePatientlyWith(t, timeouts{}, func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		hellos.Add(1)
		if stays.Load() {
			within.Add(1)
			<-goOn
			within.Add(-1)
		}
		return certificate.Get(hello)
	})
	known := p.Open(t)
	known.Answers(false)

	most := int64(runtime.GOMAXPROCS(0))
	turns := p.connections.handshakes
	if int64(cap(turns)) != most {
		t.Fatalf("got %d turns, want %d", cap(turns), most)
	}
	// Connections that send only a hello, or nothing, get no turn.
	for range 2 * most {
		begin(t, p.Address, nil)
		begin(t, p.Address, func(c net.Conn) net.Conn { return &deafConn{c} })
	}
	servertest.Until(t, "nobody has a turn",
		func() bool { return p.size() == int(4*most)+1 && hellos.Load() == 2*most+1 && len(turns) == 0 })

	stays.Store(true)
	for range most + 3 {
		begin(t, p.Address, func(c net.Conn) net.Conn { return c })
	}
	servertest.Until(t, "all turns are taken", func() bool { return within.Load() == most && p.size() == int(5*most)+4 })
	known.Answers(false)
	time.Sleep(10 * time.Millisecond) // so that more could begin
	if now := within.Load(); now != most {
		t.Errorf("%d handshakes compute, want %d", now, most)
	}
	servertest.Until(t, "those that compute or wait for a turn have unread data", func() bool {
		busy := 0
		p.connections.table.each(func(of peer) {
			if of.hasUnread() {
				busy++
			}
		})
		return busy == int(most)+3
	})
	p.connections.table.each(func(of peer) {
		if c := of.(*conn); c.fresh.Load() {
			c.giveUp()
		}
	})
	servertest.Until(t, "those without a turn end", func() bool { return p.size() == int(most)+1 })
	close(goOn)
	servertest.Until(t, "those with a turn end", func() bool { return p.size() == 1 && len(turns) == 0 })
	stays.Store(false)
	p.Open(t).Answers(false)
	known.Answers(false)
}

// size returns the number of open connections of the server.
func (p *patient) size() int {
	n := 0
	p.connections.table.each(func(peer) { n++ })
	return n
}

// begin opens a connection and starts a handshake over the result of wrap, or over the
// connection if wrap is nil.
func begin(t *testing.T, address string, wrap func(net.Conn) net.Conn) {
	t.Helper()
	raw, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { raw.Close(); <-ended })
	go func() {
		defer close(ended)
		if wrap != nil {
			_ = tls.Client(wrap(raw), servertest.TLS.Clone()).Handshake() // until the server closes it
		}
	}()
}

// A deafConn reads nothing until it is closed.
type deafConn struct{ net.Conn }

func (c *deafConn) Read([]byte) (int, error) {
	for {
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestHelloBytes has handshakes with hellos shorter and longer than the limit.
func TestHelloBytes(t *testing.T) {
	p := servePatiently(t, timeouts{})
	f := func(size int, want bool) {
		t.Helper()
		config := servertest.TLS.Clone()
		for range size / 200 {
			config.NextProtos = append(config.NextProtos, strings.Repeat("x", 198))
		}
		config.NextProtos = append(config.NextProtos, "http/1.1")
		raw := servertest.DialTCP(t, p.Address)
		err := tls.Client(raw, config).Handshake()
		if (err == nil) != want || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a hello of %d bytes: got %v, want success %v", size, err, want)
		}
	}
	f(tlsBytesMax-4<<10, true)
	f(60_000, false)
	servertest.Until(t, "the log has the reason",
		func() bool { return strings.Contains(p.Log.String(), "bytes for TLS alone, want less than 24576") })
}

// TestHandshakeBytes reads until one byte before the limit, and no more before something is
// delivered.
func TestHandshakeBytes(t *testing.T) {
	of := newHandshakeConn(&endless{}, newHandshakeSlots())
	f := func(size, want int) {
		t.Helper()
		if n, err := of.Read(make([]byte, size)); n != want || (err == nil) != (want > 0) {
			t.Errorf("got %d bytes, %v, want %d", n, err, want)
		}
	}
	f(tlsBytesMax-1, tlsBytesMax-1)
	f(1, 1)
	f(1, 0)
	of.deliver()
	f(tlsBytesMax+100, tlsBytesMax+100)
	f(1, 0)
	of.deliver()
	f(1, 1)
}

// endless is a connection that always has more to read.
type endless struct{ net.Conn }

func (*endless) Read(b []byte) (int, error) { return len(b), nil }

// TestHandshakeBytesLater sends a TLS 1.3 message after the handshake with a large length.
// Its parts are buffered: the connection ends long before the whole message.
func TestHandshakeBytesLater(t *testing.T) {
	p := servePatiently(t, timeouts{})
	raw := servertest.DialTCP(t, p.Address)
	config, secrets := servertest.TLS.Clone(), new(bytes.Buffer)
	config.KeyLogWriter, config.MinVersion = secrets, tls.VersionTLS13
	client := tls.Client(raw, config)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if suite := client.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("got cipher suite %s", tls.CipherSuiteName(suite)) // on processors without AES
	}
	seal := sealer(t, secrets.String())
	parts := []byte{24, 0, 0xff, 0xff} // a KeyUpdate of 65,535 bytes
	parts = append(parts, make([]byte, 48<<10)...)
	for len(parts) > 0 {
		n := min(len(parts), 16<<10)
		if _, err := raw.Write(seal(parts[:n])); err != nil {
			break // the connection has ended
		}
		parts = parts[n:]
	}
	buffer := make([]byte, 1<<10)
	for {
		if _, err := raw.Read(buffer); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection goes on")
			}
			return
		}
	}
}

// sealer returns a function that encrypts records with part of a handshake message, as the
// first records of the client after the handshake (RFC 8446, sections 5.2 and 7).
func sealer(t *testing.T, secrets string) func(part []byte) []byte {
	t.Helper()
	_, line, _ := strings.Cut(secrets, "CLIENT_TRAFFIC_SECRET_0 ")
	fields := strings.Fields(line)
	if len(fields) < 2 {
		t.Fatalf("got secrets %s", secrets)
	}
	secret, err := hex.DecodeString(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	expand := func(label string, size int) []byte {
		info := binary.BigEndian.AppendUint16(nil, uint16(size))
		info = append(info, byte(len("tls13 "+label)))
		info = append(info, "tls13 "+label+"\x00"...)
		out, err := hkdf.Expand(sha256.New, secret, string(info), size)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	block, err := aes.NewCipher(expand("key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	iv, sequence := expand("iv", 12), byte(0)
	return func(part []byte) []byte {
		nonce := bytes.Clone(iv)
		nonce[len(nonce)-1] ^= sequence
		sequence++
		header := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(part)+1+aead.Overhead()))
		return aead.Seal(header, nonce, append(bytes.Clone(part), 22), header)
	}
}
