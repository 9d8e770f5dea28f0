// An HTTP/3 client on quic-go, and the place behind Caddy where its uploads end.
//
//	http3 get URL CERTIFICATE LOCAL-PORT REQUESTS
//	http3 put URL CERTIFICATE LOCAL-PORT REQUESTS BYTES
//	http3 sink ADDRESS
//
// get and put send their requests one after the other over one connection, and print for each
// the bytes, the seconds, and the SHA-256 of what came (get) or arrived at the sink (put).
// sink speaks HTTP/1.1, as a program behind a proxy does.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 5 && args[0] == "get":
		return request(args[1:], func(client *http.Client) (int64, string, error) {
			return get(client, args[1])
		})
	case len(args) == 6 && args[0] == "put":
		bytes, err := strconv.ParseInt(args[5], 10, 64)
		if err != nil {
			return err
		}
		return request(args[1:], func(client *http.Client) (int64, string, error) {
			return put(client, args[1], bytes)
		})
	case len(args) == 2 && args[0] == "sink":
		return sink(args[1])
	}
	return fmt.Errorf("usage: get URL CERTIFICATE LOCAL-PORT REQUESTS, or put with BYTES behind them, or sink ADDRESS")
}

// request opens the connection and times each request.
func request(args []string, once func(*http.Client) (int64, string, error)) error {
	pem, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: no certificate", args[1])
	}
	port, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	requests, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	// The family of an unspecified address is both: quic-go needs one socket that can reach the server.
	socket, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	roundTripper := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		Dial: func(ctx context.Context, address string, config *tls.Config, settings *quic.Config) (*quic.Conn, error) {
			server, err := net.ResolveUDPAddr("udp", address)
			if err != nil {
				return nil, err
			}
			return transport.DialEarly(ctx, server, config, settings)
		},
	}
	defer roundTripper.Close()
	client := &http.Client{Transport: roundTripper}
	for range requests {
		begun := time.Now()
		bytes, digest, err := once(client)
		if err != nil {
			return err
		}
		fmt.Printf("done %d %.6f %s\n", bytes, time.Since(begun).Seconds(), digest)
	}
	return nil
}

func get(client *http.Client, url string) (int64, string, error) {
	answer, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 3 {
		return 0, "", fmt.Errorf("%s: %s %s", url, answer.Proto, answer.Status)
	}
	hash := sha256.New()
	bytes, err := io.Copy(hash, answer.Body)
	return bytes, hex.EncodeToString(hash.Sum(nil)), err
}

func put(client *http.Client, url string, bytes int64) (int64, string, error) {
	body := io.LimitReader(&pattern{}, bytes)
	order, err := http.NewRequest(http.MethodPut, url, body)
	if err != nil {
		return 0, "", err
	}
	order.ContentLength = bytes
	answer, err := client.Do(order)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 3 {
		return 0, "", fmt.Errorf("%s: %s %s", url, answer.Proto, answer.Status)
	}
	arrived, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, "", err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(&pattern{}, bytes)); err != nil {
		return 0, "", err
	}
	digest := hex.EncodeToString(hash.Sum(nil))
	if string(arrived) != digest {
		return 0, "", fmt.Errorf("%s: other bytes arrived: SHA-256 %s, expected %s", url, arrived, digest)
	}
	return bytes, digest, nil
}

// pattern is bytes that differ from those 251 places before or after.
type pattern struct{ next byte }

func (p *pattern) Read(buffer []byte) (int, error) {
	for i := range buffer {
		buffer[i] = p.next
		p.next = (p.next + 1) % 251
	}
	return len(buffer), nil
}

// sink answers each request with the SHA-256 of its body.
func sink(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", address)
	return http.Serve(listener, http.HandlerFunc(func(answer http.ResponseWriter, order *http.Request) {
		hash := sha256.New()
		if _, err := io.Copy(hash, order.Body); err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprint(answer, hex.EncodeToString(hash.Sum(nil)))
	}))
}
