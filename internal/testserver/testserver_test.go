package testserver

import (
	"net/http"
	"sync"
	"testing"
)

// TestClose has clients that ask again as soon as their requests end, as watches do.
func TestClose(t *testing.T) {
	server := Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	var clients sync.WaitGroup
	for range 8 {
		watching := make(chan struct{})
		clients.Go(func() {
			once := sync.OnceFunc(func() { close(watching) })
			for {
				response, err := http.Get(server.URL)
				once()
				if err != nil {
					return // it does not listen any more
				}
				_, _ = response.Body.Read(make([]byte, 1))
				response.Body.Close()
			}
		})
		<-watching
	}
	server.Close()
	clients.Wait()
	server.Close()
}
