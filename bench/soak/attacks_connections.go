package main

import (
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// heldAnswers is how many connections hold a header or an answer at a time. With 256 KB for a header and
// 700 KB for an answer, they would take 380 MB in all.
const heldAnswers = 400

// holdAll opens connections and writes the same to each. It holds them for heldFor.
func (a *attacks) holdAll(ctx context.Context, from string, raw string, receive int) int {
	for range heldAnswers {
		conn, err := a.dial(ctx, from)
		if err != nil {
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok && receive > 0 {
			_ = tcp.SetReadBuffer(receive)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(tls.Client(conn, a.server.target.TLS), raw)
	}
	select {
	case <-ctx.Done():
	case <-time.After(heldFor):
	}
	return 0
}

// waitWithHeader sends large header blocks of a known caller, and no bodies.
func (a *attacks) waitWithHeader(ctx context.Context, from string, _ *rand.Rand) int {
	raw := head(token, 1000)
	return a.holdAll(ctx, from, raw[:len(raw)-2]+strings.Repeat("A:b\r\n", 3000)+"\r\n", 0)
}

// unread sends reviews with long answers, and does not read those.
func (a *attacks) unread(ctx context.Context, from string, _ *rand.Rand) int {
	review := strings.Replace(string(tenantsPod()), `"containers":[`, `"containers":[`+strings.Repeat("{},", 4000), 1)
	return a.holdAll(ctx, from, strings.Repeat(head(token, len(review))+review, 8), 16<<10)
}
