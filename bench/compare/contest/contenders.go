// Package contest starts the contenders, each in a process of its own, sends them the review of a
// scenario and checks their answers.
package contest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/apiserver"
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

// policyConfig is the configuration of scenarios with policies.
const policyConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: ValidatingAdmissionPolicyConfiguration, %s}
`

// writeFiles writes fastadmit's files for a scenario. It returns the flags that name them.
func (a *Arena) writeFiles(s *Scenario) (flags []string, err error) {
	write := func(folder, name string, content []byte) string {
		at := filepath.Join(a.dir, s.Name+"."+folder)
		err = errors.Join(err, os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, name), content, 0o600))
		return filepath.Join(at, name)
	}
	if s.APIServer != "" {
		flags = append(flags, "--kubeconfig="+write("config", "kubeconfig", apiserver.Kubeconfig(s.APIServer)))
	} else {
		state := write("cluster", "cluster.yaml", []byte(cmp.Or(s.Cluster, string(corpus.Cluster))))
		flags = append(flags, "--cluster-state-dir="+filepath.Dir(state))
	}
	if slices.Contains(s.Plugins, policyPlugin) {
		source := "customResources: true"
		if s.APIServer == "" {
			source = fmt.Sprintf("staticManifestsDir: %q", filepath.Dir(write("policies", "policies.yaml", s.Policies)))
		}
		flags = append(flags, "--admission-control-config-file="+write("config", "admission.yaml", fmt.Appendf(nil, policyConfig, source)))
	}
	return flags, err
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
		files, err := a.writeFiles(s)
		if err != nil {
			return nil, err
		}
		args = slices.Concat([]string{"serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0",
			"--profiling", "--allow-unauthenticated-writes", "--enable-admission-plugins=" + strings.Join(s.Plugins, ",")}, args, files)
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

// AwaitReady waits until fastadmit has read its cluster.
func (p *Process) AwaitReady(ctx context.Context) error { return p.server.AwaitReady(ctx) }

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
