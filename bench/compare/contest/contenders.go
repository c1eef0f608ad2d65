// Package contest starts the contenders, each in a process of its own, sends them the review of a
// scenario and checks their answers.
package contest

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/policies"
	"github.com/fastadmit/fastadmit/bench/process"
	"github.com/fastadmit/fastadmit/corpus"
)

// The contenders that are treated specially.
const (
	Ours  = "fastadmit"
	Floor = "floor"
)

// A Contender is a webhook that is measured.
type Contender struct {
	// Name is the name of its folder in contenders.
	Name string
	// About describes it in Markdown.
	About string
}

// Contenders are all contenders, in the order of tables.
var Contenders = []Contender{
	{Floor, "the floor: fasthttp and TLS as in fastadmit, constant answers"},
	{Ours, "fastadmit: `fastadmit serve`"},
	{"fastjson", "fasthttp, fastjson for the whole review, jsondiff"},
	{"nethttp", "net/http, encoding/json into k8s.io/api"},
	{"controllerruntime", "sigs.k8s.io/controller-runtime v0.24.1"},
	{"kubewebhook", "slok/kubewebhook v2.7.0"},
}

// An Arena starts contenders.
type Arena struct {
	// CPUs describes which processors the generator and the servers use.
	CPUs string

	dir  string
	cpus cpus
	tls  *tls.Config // for clients
}

// NewArena builds contenders into a directory, creates their certificates, and keeps this process
// off the processor of the contenders. Call it in a directory of this module.
func NewArena(ctx context.Context, dir string, contenders ...Contender) (*Arena, error) {
	a := &Arena{dir: dir}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+"/")
	for _, c := range contenders {
		build.Args = append(build.Args, "github.com/fastadmit/fastadmit/bench/compare/contenders/"+c.Name)
	}
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("cannot build the contenders: %w", err)
	}
	if err := os.Mkdir(a.clusterDir(), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(a.clusterDir(), "cluster.yaml"), corpus.Cluster, 0o600); err != nil {
		return nil, err
	}
	if err := a.writePolicy(); err != nil {
		return nil, fmt.Errorf("cannot write the policy: %w", err)
	}
	roots, err := writeCertificates(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot make certificates: %w", err)
	}
	a.tls = &tls.Config{RootCAs: roots}
	if a.cpus, err = splitCPUs(); err != nil {
		return nil, fmt.Errorf("cannot pin the process to some processors: %w", err)
	}
	a.CPUs = a.cpus.String()
	return a, nil
}

// clusterDir is the directory from which fastadmit reads the cluster of the scenario "ten".
func (a *Arena) clusterDir() string { return filepath.Join(a.dir, "cluster") }

// policyConfig is the configuration of the scenario "policy".
const policyConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: %q
`

func (a *Arena) policyFile() string { return filepath.Join(a.dir, "policy.yaml") }

// writePolicy writes fastadmit's files for the scenario "policy".
func (a *Arena) writePolicy() error {
	manifests := filepath.Join(a.dir, "policies")
	if err := os.Mkdir(manifests, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(manifests, "policy.yaml"), policies.Manifest, 0o600); err != nil {
		return err
	}
	return os.WriteFile(a.policyFile(), fmt.Appendf(nil, policyConfig, manifests), 0o600)
}

// Settings are settings for a contender that do not depend on the scenario.
type Settings struct {
	// Key is the kind of its certificate's key, ECDSA if empty.
	Key string
	// Env is added to its environment.
	Env []string
}

// A Process is a running contender.
type Process struct {
	Contender Contender
	Scenario  *Scenario
	// Target is its address.
	Target bench.Target

	server *process.Server
}

// Start starts a contender for a scenario and waits until it serves. The floor is given the answer
// that it sends; for others, answer is empty.
func (a *Arena) Start(c Contender, s *Scenario, settings Settings, answer []byte) (*Process, error) {
	key := settings.Key
	if key == "" {
		key = ECDSA
	}
	args := []string{"--tls-cert-file=" + a.dir + "/" + key + ".crt", "--tls-private-key-file=" + a.dir + "/" + key + ".key"}
	path := ""
	switch c.Name {
	case Ours:
		args = append([]string{"serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0",
			"--profiling", "--cluster-state-dir=" + a.clusterDir(), "--allow-unauthenticated-writes", "--enable-admission-plugins=" + strings.Join(s.Plugins, ",")}, args...)
		if s.Serves == "policy" {
			args = append(args, "--admission-control-config-file="+a.policyFile())
		}
		path = s.Path
	case Floor:
		file := filepath.Join(a.dir, s.Name+".answer")
		if err := os.WriteFile(file, answer, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--answer="+file)
	default:
		args = append(args, "--scenario="+s.Serves)
	}
	cmd := exec.Command(filepath.Join(a.dir, c.Name), args...)
	cmd.Env = append(os.Environ(), settings.Env...)
	server, err := process.Start(cmd, filepath.Join(a.dir, c.Name+".log"), func() error { return a.cpus.start(cmd) })
	if err != nil {
		return nil, err
	}
	p := &Process{Contender: c, Scenario: s, server: server}
	p.Target = bench.Target{
		Name: c.Name, URL: server.URL + path, TLS: a.tls, PID: server.PID,
		MetricsURL: server.Metrics + "/metrics", PprofURL: server.Metrics + "/debug/pprof",
	}
	return p, nil
}

// Stop ends the process.
func (p *Process) Stop() { p.server.Kill() }

// StartAll starts contenders for a scenario and checks the answer of each. It returns them in the
// order of Contenders, without those that are not named or that do not take part in the scenario.
func (a *Arena) StartAll(ctx context.Context, s *Scenario, named func(name string) bool) ([]*Process, error) {
	var all []*Process
	err := func() error {
		ours, err := a.Start(contender(Ours), s, Settings{}, nil)
		if err != nil {
			return err
		}
		all = append(all, ours)
		answer, err := ours.Check(ctx, s)
		if err != nil {
			return err
		}
		for _, c := range Contenders {
			if c.Name == Ours || !named(c.Name) || !s.isBy(c) {
				continue
			}
			p, err := a.Start(c, s, Settings{}, answer)
			if err != nil {
				return err
			}
			all = append(all, p)
			if _, err := p.Check(ctx, s); err != nil {
				return err
			}
			if c.Name == Floor {
				all[0], all[1] = all[1], all[0]
			}
		}
		return nil
	}()
	if err != nil {
		StopAll(all)
		return nil, err
	}
	return all, nil
}

// StopAll ends processes.
func StopAll(all []*Process) {
	for _, p := range all {
		p.Stop()
	}
}

// OurContender returns fastadmit.
func OurContender() Contender { return contender(Ours) }

// FloorContender returns the floor.
func FloorContender() Contender { return contender(Floor) }

func contender(name string) Contender {
	for _, c := range Contenders {
		if c.Name == name {
			return c
		}
	}
	panic("no contender " + name)
}
