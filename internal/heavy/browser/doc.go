// Package browser tests the page of package inspect in a browser: Chromium, which is installed from Debian's
// package if the tests may, driven by chromedp, and axe-core from npm. It is a module of its own, so that nothing
// else depends on these. It has no code of its own.
package browser
