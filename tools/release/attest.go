package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"aead.dev/minisign"
)

const (
	sumsName       = "SHA256SUMS"
	signatureName  = sumsName + ".minisig"
	provenanceName = "provenance.intoto.json"
)

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }

// sboms writes the modules in each binary, as CycloneDX.
func (r *release) sboms(ctx context.Context) error {
	for _, p := range platforms {
		binary := binaryName(p.os, p.arch)
		fmt.Println("SBOM of", binary)
		if _, err := output(ctx, r.root, "go", "tool", "-modfile=tools/release/go.mod", "cyclonedx-gomod", "bin", "-json",
			"-noserial", "-notimestamp", "-version", "v"+r.version, "-output", r.path(binary+".cdx.json"), r.path(binary)); err != nil {
			return err
		}
	}
	return nil
}

// A digest is a file of the release.
type digest struct {
	name, sha256 string
}

// digests returns the digests of all files of the release except the named ones, ordered by name.
func (r *release) digests(but ...string) ([]digest, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var all []digest
	for _, entry := range entries {
		if slices.Contains(but, entry.Name()) {
			continue
		}
		sum, err := sumOf(r.path(entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, digest{entry.Name(), sum})
	}
	return all, nil
}

func sumOf(file string) (string, error) {
	content, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer content.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, content); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// The statement is in-toto's (https://in-toto.io/Statement/v1) with SLSA's predicate
// (https://slsa.dev/provenance/v1): which files were made from which commit, by what.
type (
	statement struct {
		Type          string    `json:"_type"`
		Subject       []subject `json:"subject"`
		PredicateType string    `json:"predicateType"`
		Predicate     predicate `json:"predicate"`
	}
	subject struct {
		Name   string            `json:"name"`
		Digest map[string]string `json:"digest"`
	}
	predicate struct {
		BuildDefinition buildDefinition `json:"buildDefinition"`
		RunDetails      runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []dependency      `json:"resolvedDependencies"`
	}
	dependency struct {
		URI    string            `json:"uri"`
		Digest map[string]string `json:"digest"`
	}
	runDetails struct {
		Builder map[string]string `json:"builder"`
	}
)

// provenance writes the statement. It does not mention the machine, so that all machines write the
// same bytes. The signer vouches for it.
func (r *release) provenance(context.Context) error {
	files, err := r.digests()
	if err != nil {
		return err
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, file := range files {
		s.Subject = append(s.Subject, subject{file.name, map[string]string{"sha256": file.sha256}})
	}
	s.Predicate.BuildDefinition = buildDefinition{
		BuildType:          source + "/blob/main/tools/release",
		ExternalParameters: map[string]string{"version": r.version},
		InternalParameters: map[string]string{"go": runtime.Version()},
		ResolvedDependencies: []dependency{{
			URI: "git+" + source, Digest: map[string]string{"gitCommit": r.commit},
		}},
	}
	s.Predicate.RunDetails.Builder = map[string]string{"id": source + "/blob/main/Makefile"}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(provenanceName), append(text, '\n'), 0o644)
}

// checksums writes the digests in the format of sha256sum -c.
func (r *release) checksums(context.Context) error {
	files, err := r.digests()
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, file := range files {
		fmt.Fprintf(&sums, "%s  %s\n", file.sha256, file.name)
	}
	fmt.Print(sums.String())
	return os.WriteFile(r.path(sumsName), []byte(sums.String()), 0o644)
}

// sign signs the checksums, and thereby all files, for minisign -Vm SHA256SUMS.
func (r *release) sign(keyFile string) error {
	if keyFile == "" {
		fmt.Println("not signed: no -key was given")
		return nil
	}
	key, err := minisign.PrivateKeyFromFile(os.Getenv("MINISIGN_PASSWORD"), keyFile)
	if err != nil {
		return fmt.Errorf("-key: %s, with the password in MINISIGN_PASSWORD: %w", keyFile, err)
	}
	sums, err := os.ReadFile(r.path(sumsName))
	if err != nil {
		return err
	}
	about := "fastadmit " + r.version + " " + r.commit
	signature := minisign.SignWithComments(key, sums, about, "signature of "+sumsName)
	public, ok := key.Public().(minisign.PublicKey)
	if !ok || !minisign.Verify(public, sums, signature) {
		return errors.New("-key: the signature that it made is not valid")
	}
	fmt.Println("signed; verify with: minisign -Vm", sumsName, "-P", publicText(public))
	return os.WriteFile(r.path(signatureName), signature, 0o644)
}

// publicText returns a public key in the format of minisign -P: the last line of its file.
func publicText(key minisign.PublicKey) string {
	lines := strings.Split(strings.TrimSpace(key.String()), "\n")
	return lines[len(lines)-1]
}
