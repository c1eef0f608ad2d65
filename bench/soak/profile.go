package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	// profileEvery is the time between two looks at the anonymous memory.
	profileEvery = 500 * time.Millisecond

	// profileStep is how much more than at the last profile the process must have for another one.
	profileStep = 10 << 20
)

// memorySeries are the series of the metrics that say what the memory is used for.
var memorySeries = regexp.MustCompile(`(?m)^(go_memstats_(heap_(inuse|idle|released|alloc)|stack_sys|sys|next_gc|mspan_sys|gc_sys)_bytes|` +
	`fastadmit_(request_bytes_in_flight|review_memory_reserved_bytes|connections_kept_bytes|requests_in_flight)|` +
	`fastadmit_connections\{port="webhooks"\}) .*$`)

// profile writes a heap profile at each new maximum of the process's anonymous memory, until ctx ends. Their names
// have the MiB. They show what was live at the last garbage collection.
func (s *server) profile(ctx context.Context, folder string) {
	var most int64
	base := strings.TrimSuffix(s.target.MetricsURL, "/metrics")
	for ; ctx.Err() == nil; time.Sleep(profileEvery) {
		now, err := s.status("RssAnon")
		if err != nil || now < most+profileStep {
			continue
		}
		most = now
		profile, err := fetch(ctx, base+"/debug/pprof/heap")
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, fmt.Sprintf("heap-%d", now>>20)), profile, 0o600)
		}
		page, pageErr := fetch(ctx, s.target.MetricsURL)
		fmt.Printf("%s: %d MiB anonymous (%v, %v): %s\n", time.Now().UTC().Format(time.TimeOnly), now>>20, err, pageErr,
			strings.Join(memorySeries.FindAllString(string(page), -1), ", "))
	}
}

// fetch returns what is at a URL of the ops port.
func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsMax)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}
