// Command floor is the transport alone: fasthttp and TLS with the settings of fastadmit's server.
// It reads the body and sends the answer that fastadmit gave. Only the uid is copied into it, from
// the place where kube-apiserver writes it.
package main

import (
	"bytes"
	"crypto/tls"
	"log"
	"net"
	"os"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/bench/compare/serving"
	"github.com/fastadmit/fastadmit/internal/socket"
)

const uidBytes = 36

// A listener opens connections that read and write as fastadmit's do.
type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return socket.Fast(conn), nil
}

func main() {
	o := serving.Flags()
	answer, err := os.ReadFile(o.Answer)
	if err != nil {
		log.Fatal(err)
	}
	mark := []byte(`"uid":"`)
	to := bytes.Index(answer, mark) + len(mark)
	from := len(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{`) + len(mark)
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			body := ctx.PostBody()
			buffer := ctx.Response.SwapBody(nil)
			buffer = append(buffer[:0], answer...)
			if len(body) >= from+uidBytes {
				copy(buffer[to:to+uidBytes], body[from:])
			}
			ctx.Response.SwapBody(buffer)
			ctx.Response.Header.SetContentType("application/json")
		},
		MaxRequestBodySize:           32 << 20,
		ReadBufferSize:               16 << 10,
		ReadTimeout:                  30 * time.Second,
		WriteTimeout:                 30 * time.Second,
		IdleTimeout:                  120 * time.Second,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		SecureErrorLogMessage:        true,
	}
	log.Fatal(server.Serve(tls.NewListener(listener{serving.Listen()}, o.TLS())))
}
