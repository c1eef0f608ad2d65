package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// probeEvery is the time between two probes of a kind.
	probeEvery = time.Second

	// probeMax is the timeout of a kubelet's probe (k8s.io/api core/v1 Probe.timeoutSeconds).
	probeMax = time.Second

	// scrapeMax is Prometheus' default scrape_timeout.
	scrapeMax = 10 * time.Second

	// checkMax is the timeout of a review in the cluster's configuration.
	checkMax = 10 * time.Second

	// probesFrom is the address from which the probes come, and checksFrom that of the checked reviews.
	probesFrom, checksFrom = "127.0.0.30", "127.0.0.31"
)

// A probe asks the same every second.
type probe struct {
	name   string
	within time.Duration
	ask    func(ctx context.Context) error // an error that wraps errWrong if the answer is wrong

	asked, wrong, late int
	slowest            time.Duration
	first              error // the first error
}

// errWrong is the error of a probe with another answer than expected.
var errWrong = errors.New("wrong answer")

// probes are requests whose answers the attacks must not delay or change.
type probes struct {
	all   []*probe
	group sync.WaitGroup
}

// startProbes starts probes of the server, and reviews of the policies and the webhook
// that attackers also use, until ctx ends. The control asks the webhook itself: it shows how late the
// machine is.
func startProbes(ctx context.Context, s *server, control string) *probes {
	ops, _ := strings.CutSuffix(s.target.MetricsURL, "/metrics")
	client := clientFrom(checksFrom, s)
	p := &probes{all: []*probe{
		{name: "GET /livez", within: probeMax, ask: health(ops + "/livez")},
		{name: "GET /readyz", within: probeMax, ask: health(ops + "/readyz")},
		{name: "GET /metrics", within: scrapeMax, ask: health(ops + "/metrics")},
		{name: "GET of the control", within: probeMax, ask: health(control)},
		{name: "review allowed by a parameter", within: checkMax, ask: check(client, s, "parameterized", `"text":"good"`, true)},
		{name: "review denied by a parameter", within: checkMax, ask: check(client, s, "parameterized", `"text":"bad"`, false)},
		{name: "review allowed by a webhook", within: checkMax, ask: check(client, s, "hooked", `"text":"good"`, true)},
	}}
	for _, probe := range p.all {
		p.group.Go(func() { probe.run(ctx) })
	}
	return p
}

func (p *probe) run(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		limited, cancel := context.WithTimeout(ctx, p.within)
		begin := time.Now()
		err := p.ask(limited)
		took := time.Since(begin)
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.asked++
		p.slowest = max(p.slowest, took)
		if err == nil {
			continue
		}
		if errors.Is(err, errWrong) {
			p.wrong++
		} else {
			p.late++
		}
		fmt.Printf("%s: %s after %s: %v\n", time.Now().UTC().Format(time.TimeOnly), p.name, took.Round(time.Millisecond), err)
		if p.first == nil {
			p.first = err
		}
	}
}

// health asks for the health of the server on a new connection, as the kubelet does.
func health(url string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		switch status := get(ctx, probesFrom, url); status {
		case http.StatusOK:
			return nil
		case 0:
			return fmt.Errorf("no answer from %s", url)
		default:
			return fmt.Errorf("%w: got %d, want 200", errWrong, status)
		}
	}
}

// clientFrom returns a client for reviews from an address.
func clientFrom(address string, s *server) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: s.target.TLS, DialContext: dialer.DialContext}}
}

// check sends a review of the namespace shop and compares the decision.
func check(client *http.Client, s *server, resource, fields string, allowed bool) func(ctx context.Context) error {
	review := soakReview(resource, "shop", fields)
	want := fmt.Appendf(nil, `"allowed":%t`, allowed)
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target.URL+"/validate?timeout=10s", bytes.NewReader(review))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		if response.StatusCode == http.StatusTooManyRequests {
			return nil // kube-apiserver sends it again
		}
		if !bytes.Contains(body, want) || !allowed && !bytes.Contains(body, []byte("params.data.allowed == object.text")) {
			return fmt.Errorf("%w: got status %d with %.300s, want %s", errWrong, response.StatusCode, body, want)
		}
		return nil
	}
}

// judge waits for the probes, prints their results, and returns an error if one has a wrong or late
// answer.
func (p *probes) judge() error {
	p.group.Wait()
	var errs []error
	for _, probe := range p.all {
		fmt.Printf("%s: %d, %d with a wrong answer, %d without one in %s, slowest %s\n", probe.name, probe.asked, probe.wrong, probe.late,
			probe.within, probe.slowest.Round(time.Millisecond))
		if probe.first != nil || probe.asked == 0 {
			errs = append(errs, fmt.Errorf("%s: got %d wrong and %d late answers to %d requests, want none; the first: %w", probe.name,
				probe.wrong, probe.late, probe.asked, probe.first))
		}
	}
	return errors.Join(errs...)
}
