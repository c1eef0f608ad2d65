package server

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

const (
	// After a page of metrics, there is a pause of pageRests times the time that the page took. So
	// a flood of requests for the page takes at most a tenth of a processor.
	pageRests = 9

	// pageRestMax bounds the pause. Scrapers wait for 10 s by default (Prometheus scrape_timeout).
	pageRestMax = 100 * time.Millisecond
)

// metricsPages makes the pages of metrics, one at a time. A page takes milliseconds: otherwise, a flood of
// requests for it would delay the kubelet's probes, and the kubelet would restart the process. All requests
// that arrive before a page is begun get the same page. So a scraper waits for at most two pages, whatever
// the number of requests.
type metricsPages struct {
	metrics *serverMetrics
	making  chan struct{} // has an element while a page is made, and during the pause after it

	mu   sync.Mutex
	next *metricsPage // the page that has not been begun; nil if no request waits for one
}

// A metricsPage is complete when done is closed. Its content is nil if a gauge panicked.
type metricsPage struct {
	done    chan struct{}
	content []byte
}

func newMetricsPages(m *serverMetrics) *metricsPages {
	return &metricsPages{metrics: m, making: make(chan struct{}, 1)}
}

// serve answers with a page that is begun after the arrival of the request.
func (p *metricsPages) serve(w http.ResponseWriter, request *http.Request) {
	p.mu.Lock()
	page, isFirst := p.next, p.next == nil
	if isFirst {
		page = &metricsPage{done: make(chan struct{})}
		p.next = page
	}
	p.mu.Unlock()
	if isFirst {
		p.complete(page) // even if the client leaves, because others wait for the page
	}
	p.answer(w, request, page)
}

// answer waits for a page and answers with it.
func (p *metricsPages) answer(w http.ResponseWriter, request *http.Request, page *metricsPage) {
	select {
	case <-page.done:
	case <-request.Context().Done():
		return // the client is gone
	}
	if page.content == nil {
		http.Error(w, "the metrics cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(page.content) // fails if the client is gone
}

// complete makes a page after the one before it and the pause.
func (p *metricsPages) complete(page *metricsPage) {
	p.making <- struct{}{}
	p.mu.Lock()
	p.next = nil
	p.mu.Unlock()
	begin := time.Now()
	defer func() { // also if a gauge panics, which net/http recovers
		close(page.done)
		time.AfterFunc(min(pageRests*time.Since(begin), pageRestMax), func() { <-p.making })
	}()
	var b bytes.Buffer
	p.metrics.write(&b)
	page.content = b.Bytes()
}
